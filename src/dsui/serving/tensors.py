"""Tensors of the Open Inference Protocol, as JSON and in its binary extension.

https://github.com/open-inference/open-inference-protocol has the protocol, version 2, which KServe and Triton speak. In
the extension the JSON comes first, as long as the header Inference-Header-Content-Length says, and behind it the bytes
of the tensors, little-endian and in row-major order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsui.plain_json import load_json
from dsui.schema import NOTHING, check, either, instance, listed, mapping, record, text, whole
from dsui.serving.refusal import Refusal

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "INT64": np.dtype("<i8"),
    "FP32": np.dtype("<f4"),
}
"""The data types that models of dsui have."""
LARGEST_JSON = 8 << 20
"""Bytes of JSON; while it is parsed nothing else is answered. Larger tensors travel in the binary extension."""
PARAMETERS = either(mapping(instance(object, "anything")), NOTHING)
"""Clients such as MLServer's write null for what they leave out."""
TENSOR = record(
    {"name": text(), "datatype": text(20), "shape": listed(whole(0, 1 << 31), most=8, least=1)},
    {"parameters": PARAMETERS, "data": either(instance(list, "a list of numbers"), NOTHING)},
)
REQUEST = record(
    {"inputs": listed(TENSOR, most=8, least=1)},
    {
        "id": either(text(200), NOTHING),
        "parameters": PARAMETERS,
        "outputs": either(listed(record({"name": text()}, {"parameters": PARAMETERS}), most=100), NOTHING),
    },
)


class Infer(NamedTuple):
    """A request: its one tensor, the outputs it wants (all where it names none), and which of them as bytes."""

    number: str | None
    name: str
    tensor: NDArray[Any]
    outputs: list[str]
    binary: Mapping[str, bool]
    all_binary: bool


def parse_infer(body: bytes, header_size: str | None) -> Infer:
    """A Refusal says what is wrong with a request."""
    size = len(body)
    if header_size is not None:
        size = int(header_size) if header_size.isdecimal() and len(header_size) < 12 else size + 1
    if size > len(body):
        raise Refusal(400, "Inference-Header-Content-Length is not the length of the JSON at the body's beginning.")
    if size > LARGEST_JSON:
        raise Refusal(413, f"the JSON has more than {LARGEST_JSON:,} bytes; send the tensor as binary data behind it.")
    try:
        content: Any = load_json(body[:size])
        check(content, REQUEST)
    except (ValueError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the body is no inference request: {error}.") from error
    if len(content["inputs"]) != 1:
        raise Refusal(400, f"the request has {len(content['inputs'])} inputs and the model takes one.")
    (given,) = content["inputs"]
    rest = memoryview(body)[size:]
    wanted = content.get("outputs") or []
    return Infer(
        content.get("id"),
        given["name"],
        _tensor(given, rest),
        [each["name"] for each in wanted],
        {
            each["name"]: parameters["binary_data"] is True
            for each in wanted
            if "binary_data" in (parameters := each.get("parameters") or {})
        },
        (content.get("parameters") or {}).get("binary_data_output") is True,
    )


def _tensor(given: Mapping[str, Any], rest: memoryview) -> NDArray[Any]:
    shape = tuple(given["shape"])
    if (dtype := DTYPES.get(given["datatype"])) is None:
        raise Refusal(400, f"a tensor is {given['datatype']}; a model of dsui takes UINT8 images or FP32 features.")
    count = math.prod(shape)
    size = (given.get("parameters") or {}).get("binary_data_size")
    if size is not None:
        if size != len(rest) or type(size) is not int or size != count * dtype.itemsize:
            raise Refusal(
                400,
                f"the tensor of shape {list(shape)} needs {count * dtype.itemsize:,} bytes of {given['datatype']} and "
                f"{len(rest):,} came; binary_data_size must be that number.",
            )
        return np.frombuffer(rest, dtype=dtype).reshape(shape)
    if given.get("data") is None:
        raise Refusal(400, "the tensor has neither data nor binary_data_size; send one of them.")
    return _of_numbers(given["data"], dtype, shape, count)


def _of_numbers(data: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...], count: int) -> NDArray[Any]:
    """Nested as the shape is, or flat."""
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError) as error:
        raise Refusal(400, "the tensor's data are no array of numbers; send one flat list.") from error
    kinds = {"b": "b", "f": "iuf"}.get(dtype.kind, "iu")
    if values.size != count or (values.dtype.kind not in kinds and count):
        raise Refusal(
            400,
            f"the tensor's data are not the {count:,} numbers of {dtype.name} that its shape {list(shape)} asks for.",
        )
    if dtype.kind in "iu" and count:
        bounds = np.iinfo(dtype)
        if values.min() < bounds.min or values.max() > bounds.max:
            raise Refusal(400, f"the tensor's data must lie from {bounds.min} to {bounds.max}.")
    with np.errstate(over="ignore"):  # what is too large for a float32 is infinite
        return values.astype(dtype).reshape(shape)


def kind_of(values: NDArray[Any]) -> str:
    """The protocol's name of an array's type, which is one of DTYPES."""
    return next(kind for kind, dtype in DTYPES.items() if dtype == values.dtype)


def encode_answer(
    facts: Mapping[str, Any], outputs: Mapping[str, NDArray[Any]], request: Infer
) -> tuple[bytes, int | None]:
    """The body of the answer, and the length of its JSON where bytes follow it."""
    described, binary = [], []
    for name, values in outputs.items():
        kind = kind_of(values)
        tensor: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(values.shape)}
        if request.binary.get(name, request.all_binary):
            content = np.ascontiguousarray(values).tobytes()
            binary.append(content)
            tensor["parameters"] = {"binary_data_size": len(content)}
        else:
            flat = values.ravel().tolist()
            tensor["data"] = [each if math.isfinite(each) else None for each in flat] if kind == "FP32" else flat
        described.append(tensor)
    head = json.dumps({**facts, "outputs": described}).encode()
    return (head, None) if not binary else (b"".join([head, *binary]), len(head))
