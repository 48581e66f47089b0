"""A stamp that shows whether a data set's files have changed, from names, sizes and times, without reading them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from dsui.data.registry import FOLDER, dataset_info, default_root, folder_path


def stamp(name: str, split: str, root: Path | None = None) -> str:
    """Sixteen hexadecimal digits that change when a file of the split is added, removed or written again.

    The stamp of a data set inside a package never changes. New content with the old size and time is not noticed.
    """
    digest = hashlib.sha256(os.fsencode(f"{name}\n{split}\n"))
    for path in sorted(_files(name, split, root or default_root())):
        digest.update(os.fsencode(f"{path}\n{_facts(path)}\n"))
    return digest.hexdigest()[:16]


def _facts(path: str) -> tuple[int, int] | None:
    """Size and time of the last change; None for a link that leads nowhere."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _files(name: str, split: str, root: Path) -> Iterator[str]:
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
