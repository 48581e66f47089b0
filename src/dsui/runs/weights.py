"""The weights of a run as model.safetensors: tensors by name, and text that describes them in the metadata.

The format cannot hold code, so weights from a stranger are safe to open. Checksums in the metadata show damage
(`dsui.runs.seal`); weights of earlier versions have none.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from dsui.errors import RunError
from dsui.excerpt import shorten
from dsui.regular_file import check_regular
from dsui.runs.checkpoint import SCHEMA, check_schema
from dsui.runs.files import write_atomic
from dsui.runs.seal import BrokenSealError, check_seal, is_sealed, sealed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

KINDS = {"BOOL", "U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64"}
"""The kinds of numbers that weights may hold."""
LONGEST_VERSION = 9


def save_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write `tensors` from any device. Tied ones are written once for each name."""
    # safetensors refuses tensors that share memory or are not contiguous; a fresh copy is neither
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    content = sealed(save(copies, {**metadata, "schema": str(SCHEMA)}))
    write_atomic(path, lambda stream: stream.write(content))


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, on the CPU, and the metadata that `save_weights` wrote."""
    with _open(path, with_tensors=True) as (content, metadata):
        names = list(content.keys())
        for name in names:
            if (kind := content.get_slice(name).get_dtype()) not in KINDS:
                raise RunError(f"{path} holds numbers of the kind {kind}, which dsui does not use; choose another run.")
        return {name: content.get_tensor(name) for name in names}, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata alone, without reading the weights."""
    with _open(path, with_tensors=False) as (_, metadata):
        return metadata


@contextmanager
def _open(path: Path, with_tensors: bool) -> Iterator[tuple[Any, dict[str, str]]]:
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as content:
            metadata: dict[str, str] = content.metadata() or {}
            schema = metadata.get("schema", "")
            check_schema(path, int(schema) if schema.isdecimal() and len(schema) <= LONGEST_VERSION else None)
            if is_sealed(metadata):
                check_seal(path, with_tensors)
            yield content, metadata
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing; train the run to its end or choose another.") from error
    except OSError as error:
        raise RunError(
            f"{path} cannot be read ({error.strerror or shorten(error)}); repair this or choose another run."
        ) from error
    except BrokenSealError as error:
        raise RunError(f"{error}; copy the file again or train again.") from error
    except SafetensorError as error:
        raise RunError(
            f"{path} is cut off or not a safetensors file ({shorten(error)}); copy it again or train again."
        ) from error
