"""One graph of two: the preparation of images, and what a traced run makes of the pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsui.errors import DsuiError
from dsui.export.preparation_graph import IMAGES, PIXELS, preparation_graph
from dsui.runtime.inputs import ImageForm

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

PREFIX = "preparation/"
LARGEST = (1 << 31) - 1
"""Bytes; no ONNX file without external data is larger."""


def prepended(model: ModelProto, form: ImageForm) -> ModelProto:
    """The same outputs for 8-bit images [N, H, W, C] of any size."""
    from onnx import ModelProto

    first = preparation_graph(form.channels, form.size, form.preparation)
    _rename(first.graph)
    whole = ModelProto()
    whole.CopyFrom(model)
    whole.graph.ClearField("node")
    whole.graph.ClearField("input")
    whole.graph.node.extend([*first.graph.node, *model.graph.node])
    whole.graph.initializer.extend(first.graph.initializer)
    whole.graph.input.extend(each for each in first.graph.input if each.name == IMAGES)
    return whole


def to_bytes(model: ModelProto) -> bytes:
    """The file; a DsuiError where it is too large to be one."""
    if model.ByteSize() > LARGEST:
        raise DsuiError(
            f"the model has {model.ByteSize() / 2**30:.1f} GiB and one ONNX file holds at most 2; train on a smaller "
            "backbone, or predict with dsui predict."
        )
    content: bytes = model.SerializeToString()
    return content


def _rename(graph: GraphProto) -> None:
    """Put PREFIX before every name but that of the input and the output, so that none is that of another value."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = _renamed(value.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [_renamed(name) for name in names]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g)


def _renamed(name: str) -> str:
    return name if name in {"", IMAGES, PIXELS} else f"{PREFIX}{name}"
