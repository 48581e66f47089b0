"""Checksums in the metadata of a safetensors file, by which a wrong bit anywhere in it is noticed.

    sha256         SHA-256 of the bytes behind the header: all tensors, in the order in which they lie in the file
    sha256_header  SHA-256 of the header without this entry, as JSON with sorted keys and without spaces

The second covers the first, so that the metadata can be checked alone, without reading the tensors. Both show
accidents, not forgery: whoever changes a file can also change its checksums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAYLOAD, HEADER = "sha256", "sha256_header"
METADATA = "__metadata__"
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, in so many bytes."""


class BrokenSealError(Exception):
    """A file is not as it was written."""


def sealed(content: bytes) -> bytes:
    """The same safetensors file with its checksums. Its header is sorted: safetensors writes it in a random order."""
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:start])
    metadata = header.setdefault(METADATA, {})
    metadata.pop(HEADER, None)
    metadata[PAYLOAD] = hashlib.sha256(memoryview(content)[start:]).hexdigest()
    metadata[HEADER] = hashlib.sha256(_json(header)).hexdigest()
    text = _json(header)
    text = text.ljust(-(-len(text) // 8) * 8)  # tensors stay aligned
    return len(text).to_bytes(LENGTH_BYTES, "little") + text + content[start:]


def is_sealed(metadata: Mapping[str, str]) -> bool:
    return PAYLOAD in metadata or HEADER in metadata


def check_seal(path: Path, payload: bool = True) -> None:
    """A BrokenSealError where a sealed file is not as it was written; without `payload` only its header is read."""
    with path.open("rb") as stream:
        header: dict[str, Any] = json.loads(stream.read(int.from_bytes(stream.read(LENGTH_BYTES), "little")))
        metadata = header.get(METADATA, {})
        of_header, of_payload = metadata.pop(HEADER, None), metadata.get(PAYLOAD)
        if hashlib.sha256(_json(header)).hexdigest() != of_header:
            raise BrokenSealError(f"the header of {path} is not as it was written")
        if payload and hashlib.file_digest(stream, "sha256").hexdigest() != of_payload:
            raise BrokenSealError(f"the tensors of {path} are not as they were written")


def _json(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
