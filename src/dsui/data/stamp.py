"""Whether a data set's files are still the same, told without reading them: their names, sizes and times of change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from dsui.data.registry import FOLDER, dataset_info, default_root, folder_path


def stamp(name: str, split: str, root: Path | None = None) -> str:
    """Sixteen hexadecimal digits that change when a file of the split is added, removed or written anew.

    A set that comes inside a package has one stamp for ever. Content that is replaced without a new time or size goes
    unnoticed.
    """
    digest = hashlib.sha256(os.fsencode(f"{name}\n{split}\n"))
    for path in sorted(_files(name, split, root or default_root())):
        digest.update(os.fsencode(f"{path}\n{_facts(path)}\n"))
    return digest.hexdigest()[:16]


def _facts(path: str) -> tuple[int, int] | None:
    """Size and time of change; None of a link that leads nowhere."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _files(name: str, split: str, root: Path) -> Iterator[str]:
    if name.startswith(FOLDER):
        path = folder_path(name)
        yield from _below(path / split if (path / split).is_dir() else path)  # of one not split by its user, all files
        return
    entry = dataset_info(name)
    if entry.files and split in entry.splits:
        for trace in entry.splits[split].traces:
            for found in root.glob(trace):
                yield from _below(found)


def _below(path: Path) -> Iterator[str]:
    """All files, through links to folders too, since data sets are read through them.

    A folder met a second time, perhaps in a circle of links, counts by its own name alone.
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
