"""What NVIDIA Triton must know of an exported file: config.pbtxt, made from the graph itself.

    input   dims of one image or row, -1 where the graph takes any size
    output  dims of one answer; one number an image is dims [1], reshaped from none, since a dim is demanded

The first dim of every tensor is that of the batch, which Triton adds. It joins waiting requests of equal image sizes
into batches, as large and after as long as `dsui serve` does (`dsui.serving.settings`). The fields are those of
model_config.proto, github.com/triton-inference-server/common; the tests read the text by that schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dsui.serving.settings import ServerSettings

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

BACKEND, FILE, LABELS = "onnxruntime", "model.onnx", "labels.txt"
LABELLED = "probabilities"
"""The output whose places are named by LABELS, for clients that ask for the classes alone."""
KINDS = {1: "TYPE_FP32", 2: "TYPE_UINT8", 7: "TYPE_INT64", 9: "TYPE_BOOL"}
"""By the number of the type in ONNX."""
ANY = -1


def config_text(graph: GraphProto, name: str) -> str:
    """The file for a model called `name`, which needs no escapes."""
    settings = ServerSettings()
    return "\n".join(
        [
            f'name: "{name}"',
            f'backend: "{BACKEND}"',
            f'default_model_filename: "{FILE}"',
            f"max_batch_size: {settings.batch}",
            f"dynamic_batching {{ max_queue_delay_microseconds: {round(settings.wait * 1e6)} }}",
            *(_tensor("input", each, _dims(each)) for each in graph.input),
            *(_output(each) for each in graph.output),
            "",
        ]
    )


def labels_text(classes: Iterable[str]) -> str:
    """A line for each class; a line break in a name becomes a space."""
    return "".join(f"{' '.join(name.splitlines())}\n" for name in classes)


def _output(value: ValueInfoProto) -> str:
    dims = _dims(value)
    more = [f'label_filename: "{LABELS}"'] if value.name == LABELLED else []
    return _tensor("output", value, dims or [1], [*more, *([] if dims else ["reshape { shape: [] }"])])


def _tensor(kind: str, value: ValueInfoProto, dims: Sequence[int], more: Sequence[str] = ()) -> str:
    fields = [
        f'name: "{value.name}"',
        f"data_type: {KINDS[value.type.tensor_type.elem_type]}",
        f"dims: [{', '.join(map(str, dims))}]",
        *more,
    ]
    return "\n  ".join([f"{kind} {{", *fields]) + "\n}"


def _dims(value: ValueInfoProto) -> list[int]:
    """Those behind the batch."""
    return [each.dim_value or ANY for each in value.type.tensor_type.shape.dim][1:]
