"""A tiny ONNX file as `dsui export` writes them, made without PyTorch: the mean colour decides.

    x = mean over pixels / 255 (or the features), y = x W + b, probabilities = softmax(y)
    uncertainty = 1 - max_c p_c, foreignness = sum_m (x_m - 1/2)^2, log-density = -foreignness

`expected_outputs` is the same in float64.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET, IR = 18, 9
LIMITS: dict[str, dict[str, Any]] = {
    "uncertainty": {"score": "uncertainty", "value": 0.3, "finds": "errors"},
    "foreignness": {"score": "foreignness", "value": 0.4, "finds": "foreign images"},
}
CLASSES = ("cat", "dog", "owl")


def write_onnx_model(
    path: Path,
    *,
    features: bool = False,
    channels: int = 3,
    size: int = 8,
    classes: Sequence[str] = CLASSES,
    density: bool = True,
    limits: Sequence[str] = ("uncertainty",),
    changes: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Write the file and give its metadata. `channels` are the number of features where it takes these. Without
    `density` there is neither foreignness nor log-density. `limits` are none, one or both of LIMITS. `changes` replace
    parts of the metadata, and leave the graph as it is."""
    metadata = metadata_of(features, channels, size, classes, density, limits)
    model = helper.make_model(
        graph_of(features, channels, len(classes), density, limits),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="dsui",
    )
    helper.set_model_props(model, {"dsui": json.dumps({**metadata, **(changes or {})})})
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())
    return metadata


def metadata_of(
    features: bool, channels: int, size: int, classes: Sequence[str], density: bool, limits: Sequence[str]
) -> dict[str, Any]:
    outputs = ["label", "probabilities", "uncertainty", *(["foreignness", "log_density"] if density else [])]
    quantiles = [round(float(each), 4) for each in np.linspace(0, 1 - 1 / len(classes), 101)]
    thresholds = {
        "limits": [LIMITS[name] for name in limits],
        "asked": {"coverage": 0.95, "risk": None},
        "coverage": 0.953,
        "risk": 0.007,
        "images": 300,
    }
    return {
        "format": 1,
        "dsui": "0.1.0",
        "name": "tiny",
        "method": "dsui",
        "backbone": "small",
        "data": "folder:photos",
        "weights": "0" * 64,
        "created": "2026-11-19T14:00:00+00:00",
        "input": "features" if features else "images",
        "channels": channels,
        "size": None if features else size,
        "preparation": None,
        "classes": list(classes),
        "outputs": [*outputs, *(["accepted"] if limits else [])],
        "precision": "fp32",
        "temperature": None,
        "thresholds": thresholds if limits else None,
        "promise": "About 95 % of images like the training images are accepted." if limits else None,
        "calibration": {"images": 300, "errors": 12, "uncertainty": quantiles}
        | ({"foreignness": quantiles} if density else {}),
        "verdict": {"grade": "use", "headline": "Use this model: it knows its errors.", "next_step": "dsui predict"},
    }


def weights_of(channels: int, classes: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """W [M, C] and b [C]."""
    generator = np.random.default_rng(0)
    weight = (8 * generator.standard_normal((channels, classes))).astype(np.float32)
    return weight, (-weight.mean(0) * channels / 2).astype(np.float32)


def graph_of(features: bool, channels: int, classes: int, density: bool, limits: Sequence[str]) -> onnx.GraphProto:
    weight, bias = weights_of(channels, classes)
    constants = {
        "weight": weight,
        "bias": bias,
        "largest": np.float32(255),
        "one": np.float32(1),
        "half": np.float32(0.5),
        "pixels": np.array([1, 2], np.int64),
        "last": np.array([1], np.int64),
        **{f"most_{name}": np.float32(LIMITS[name]["value"]) for name in limits},
    }
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "weight", "bias"], ["y"]),
        node("Softmax", ["y"], ["probabilities"], axis=1),
        node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
        node("ReduceMax", ["probabilities", "last"], ["max_probability"], keepdims=0),
        node("Sub", ["one", "max_probability"], ["uncertainty"]),
    ]
    if features:
        nodes.insert(0, node("Identity", ["features"], ["x"]))
    else:
        nodes[:0] = [
            node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
            node("ReduceMean", ["floats", "pixels"], ["mean"], keepdims=0),
            node("Div", ["mean", "largest"], ["x"]),
        ]
    if density:
        nodes += [
            node("Sub", ["x", "half"], ["centred"]),
            node("ReduceSumSquare", ["centred", "last"], ["foreignness"], keepdims=0),
            node("Neg", ["foreignness"], ["log_density"]),
        ]
    accepting = [f"accepts_{name}" for name in limits]
    nodes += [node("LessOrEqual", [name, f"most_{name}"], [each]) for name, each in zip(limits, accepting, strict=True)]
    if limits:
        nodes.append(node("And" if len(limits) == 2 else "Identity", accepting, ["accepted"]))
    floats: dict[str, list[str | int | None]] = {"uncertainty": ["N"], "probabilities": ["N", classes]}
    floats |= {"foreignness": ["N"], "log_density": ["N"]} if density else {}
    value = helper.make_tensor_value_info
    outputs = [value("label", TensorProto.INT64, ["N"])]
    outputs += [value(name, TensorProto.FLOAT, shape) for name, shape in floats.items()]
    outputs += [value("accepted", TensorProto.BOOL, ["N"])] if limits else []
    taken = (
        value("features", TensorProto.FLOAT, ["N", channels])
        if features
        else value("images", TensorProto.UINT8, ["N", "H", "W", channels])
    )
    initializers = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    return helper.make_graph(nodes, "tiny", [taken], outputs, initializers)


def expected_outputs(inputs: NDArray[Any], classes: int = len(CLASSES)) -> dict[str, NDArray[Any]]:
    """What the file gives for uint8 images [N, H, W, C] or features [N, M], in float64; without decisions."""
    x = inputs.mean((1, 2)) / 255 if inputs.ndim == 4 else inputs.astype(np.float64)
    weight, bias = weights_of(x.shape[1], classes)
    logits = x @ weight.astype(np.float64) + bias
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = exponents / exponents.sum(1, keepdims=True)
    foreignness = ((x - 0.5) ** 2).sum(1)
    return {
        "label": logits.argmax(1),
        "probabilities": probabilities,
        "uncertainty": 1 - probabilities.max(1),
        "foreignness": foreignness,
        "log_density": -foreignness,
    }
