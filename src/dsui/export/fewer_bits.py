"""The network of an exported graph in fewer bits; what follows it, head, scores and thresholds, stays as it is.

    fp16    weights and activations as float16; half the size
    int8    weights as int8 for each channel, activations as uint8, as QuantizeLinear and DequantizeLinear pairs whose
            ranges are those of calibration images; a quarter of the size

A processor without instructions for products of 8-bit numbers adds two of them in 16 bits, which can overflow; with 7
bits for weights they cannot, so the file means the same on every machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.export.half_precision import halved
from dsui.export.silence import without_remarks
from dsui.export.tracing import TracedGraph

if TYPE_CHECKING:
    from onnx import ModelProto

Precision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
CALIBRATION_BATCH = 16
MOST_CALIBRATION = 256
"""Images; the ranges of activations hardly change with more."""
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The operations that are computed in 8 bits."""


def with_fewer_bits(traced: TracedGraph, precision: Precision, calibration: Tensor | None) -> ModelProto:
    """The traced graph with its network in `precision`; `calibration` [N, C, H, W] are 8-bit images, for int8."""
    if not any(node.op_type in PRODUCTS and node.name in set(traced.network) for node in traced.model.graph.node):
        raise DsuiError("this run has no network before its head to compute in fewer bits; leave out --fp16 or --int8.")
    try:
        with without_remarks():
            return halved(traced.model, traced.network) if precision == "fp16" else _to_int8(traced, calibration)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise DsuiError(
            f"ONNX Runtime cannot convert this network to {precision} ({shorten(error)}); export it without."
        ) from error


def _to_int8(traced: TracedGraph, calibration: Tensor | None) -> ModelProto:
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    assert calibration is not None, "export_run has checked that there are held-out images"
    with tempfile.TemporaryDirectory(prefix="dsui-int8-") as folder:
        out = Path(folder) / "int8.onnx"
        quantize_static(
            _copy(traced.model),
            out,
            _Reader(traced.model.graph.input[0].name, calibration[:MOST_CALIBRATION]),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(PRODUCTS),
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(traced.network),
        )
        return onnx.load(out)


class _Reader:
    """Calibration images in batches, as quantize_static asks for them."""

    def __init__(self, name: str, images: Tensor) -> None:
        self.name, self._batches = name, iter(images.float().split(CALIBRATION_BATCH))

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        batch = next(self._batches, None)
        return None if batch is None else {self.name: np.ascontiguousarray(batch.numpy())}


def _copy(model: ModelProto) -> ModelProto:
    from onnx import ModelProto

    copied = ModelProto()
    copied.CopyFrom(model)
    return copied
