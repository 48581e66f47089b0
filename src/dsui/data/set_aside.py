"""Which images of a class are for test where the user has not split them: about a fifth, by their names.

    for test:  h < 2^64 / 5      h: the first eight bytes of the SHA-256 of the file's path below PATH

So no file changes sides when others are added or removed, with one exception. Where the hash would leave a side of a
class empty, the file of the smallest h is for test, or that of the largest for training, and this one file may change
sides when the class does. A class of one image is trained on and not tested.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

HASHES = 1 << 64
SHARE = 5
"""One image of so many is for test."""


def for_test(files: Sequence[Path], path: Path) -> frozenset[Path]:
    """Those of one class's `files`, which lie below `path`, that are for test."""
    if len(files) < 2:
        return frozenset()
    by_hash = sorted(files, key=lambda file: _hash(file, path))
    chosen = [file for file in by_hash if _hash(file, path) * SHARE < HASHES]
    return frozenset((chosen or by_hash[:1])[: len(files) - 1])


def _hash(file: Path, path: Path) -> int:
    name = os.fsencode(file.relative_to(path).as_posix())
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
