"""Checksums of files, as "sha256:..." or "md5:..."."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dsui.regular_file import open_regular

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"sha256": "SHA-256", "md5": "MD5"}


def algorithm_of(checksum: str) -> str:
    """The algorithm's name for readers."""
    return NAMES[checksum.partition(":")[0]]


def checksum_of(path: Path, like: str) -> str:
    """The checksum of a file by the algorithm of the checksum `like`."""
    algorithm = like.partition(":")[0]
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"
