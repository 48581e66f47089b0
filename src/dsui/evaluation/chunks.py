"""What stored outputs must hold, checked before they are read: a chunk may lack a part, or be of another program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from dsui.outputs import OWN, PER_SAMPLE, SHARED
from dsui.plain_json import load_json
from dsui.runs.weights import KINDS
from dsui.schema import SchemaError, check, listed, number, record, text, whole

AS_JSON = ("count", "seconds", "passes", "classes")
FACTS = record(
    {
        "count": whole(0),
        "seconds": number(0),
        "passes": whole(1),
        "classes": listed(text(), most=100_000),
        "device": text(),
    }
)
"""The metadata of the last chunk; those of AS_JSON are JSON in the file."""
SHAPE = listed(whole(0), most=3, least=1)
PARTS = record({"features": SHAPE, "logits": SHAPE, "labels": SHAPE})
"""The shapes of what every chunk holds."""


class ChunkFacts(NamedTuple):
    """See `dsui.evaluation.cache.StoredOutputs`."""

    images: int
    seconds: float
    passes: int
    classes: tuple[str, ...]
    device: str


def read_facts(paths: Sequence[Path], metadata: Mapping[str, str]) -> ChunkFacts:
    """The facts in the metadata of the last of these chunks; a ValueError unless the chunks hold all that they say."""
    values: dict[str, Any] = {**metadata, **{name: load_json(metadata.get(name, "null")) for name in AS_JSON}}
    check(values, FACTS)
    chunks = [_shapes(path) for path in paths]
    for shapes in chunks:
        check(shapes, PARTS)
        if shapes.keys() != chunks[0].keys() or not all(map(_is_part, shapes)):
            raise SchemaError("the chunks hold different parts, or parts of another program")
        images = {shape[0] for name, shape in shapes.items() if name not in SHARED}
        if images != {shapes["logits"][0]}:
            raise SchemaError("the parts of a chunk are of different numbers of images")
    if sum(shapes["logits"][0] for shapes in chunks) != values["count"]:
        raise SchemaError("a chunk is missing")
    classes = tuple(values["classes"])
    return ChunkFacts(values["count"], values["seconds"], values["passes"], classes, values["device"])


def _is_part(name: str) -> bool:
    return name in (*PER_SAMPLE, *SHARED) or name.startswith(OWN)


def _shapes(path: Path) -> dict[str, list[int]]:
    try:
        with safe_open(path, framework="pt") as content:
            parts = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118
            if any(part.get_dtype() not in KINDS for part in parts.values()):
                raise SchemaError("a part is of an unknown kind of numbers")
            return {name: part.get_shape() for name, part in parts.items()}
    except (OSError, SafetensorError) as error:
        raise SchemaError("a chunk cannot be opened") from error
