"""A stamp that shows whether a data set's files have changed: names, sizes, times, and the first and last bytes.

Files are not read whole. Two blocks of each find an image that another program put in the place of one of equal size
and time: formats of images keep their checksum, or the end of their compressed pixels, at the end.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dsui.data.registry import FEATURES, FOLDER, dataset_info, default_root, folder_path, own_path

BLOCK = 4096
"""Bytes that are read at the beginning and at the end of a file: what a disk reads at once."""


def stamp(name: str, split: str, root: Path | None = None) -> str:
    """Sixteen hexadecimal digits that change when a file of the split is added, removed or written again.

    The stamp of a data set inside a package never changes. A file that keeps its size and time and differs in its
    middle alone is not noticed.
    """
    digest = hashlib.sha256(os.fsencode(f"{name}\n{split}\n"))
    for path in sorted(_files(name, split, root or default_root())):
        digest.update(os.fsencode(f"{path}\n{_facts(path)}\n"))
    return digest.hexdigest()[:16]


def _facts(path: str) -> tuple[int, int, str] | None:
    """Size, time of the last change and hash of two blocks; None for a link that leads nowhere."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    blocks = _blocks(path, status.st_size) if stat.S_ISREG(status.st_mode) else b""
    return status.st_size, status.st_mtime_ns, hashlib.sha256(blocks).hexdigest()


def _blocks(path: str, size: int) -> bytes:
    """The first and the last block; nothing of a file that may not be read, which the reading of the set reports."""
    try:
        with open(path, "rb", buffering=0) as stream:
            first = stream.read(BLOCK)
            stream.seek(max(len(first), size - BLOCK))
            return first + stream.read(BLOCK)
    except OSError:
        return b""


def _files(name: str, split: str, root: Path) -> Iterator[str]:
    if name.startswith(FEATURES):
        yield from _below(own_path(name))
        return
    if name.startswith(FOLDER):
        path = folder_path(name)
        yield from _below(path / split if (path / split).is_dir() else path)  # without train and test, all files
        return
    dataset = dataset_info(name)
    if dataset.files and split in dataset.splits:
        for trace in dataset.splits[split].traces:
            for found in root.glob(trace):
                yield from _below(found)


def _below(path: Path) -> Iterator[str]:
    """All files, also those behind links to folders, because data sets are read through such links.

    A folder that is met a second time, perhaps in a circle of links, counts by its name alone.
    """
    if path.is_file():
        yield str(path.absolute())
    seen = set()
    for folder, below, names in os.walk(path, followlinks=True):
        known = os.path.realpath(folder) in seen
        seen.add(os.path.realpath(folder))
        absolute = os.path.abspath(folder)
        below[:] = [] if known else sorted(below)
        yield from (os.path.join(absolute, name) for name in (["."] if known else names))
