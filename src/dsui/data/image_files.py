"""The image files that a user names, one by one or by folders of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsui.data.decode import extensions


def image_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files among `paths`, whatever their names, and the image files in and below the folders, sorted by name.

    In folders, hidden files and files whose ending no image has are ignored. Links are followed, but no folder is
    entered twice. A path that does not exist or cannot be listed is given as it is: the error comes when it is read.
    """
    known, seen = extensions(), set[str]()

    def below(folder: Path) -> Iterator[Path]:
        real = os.path.realpath(folder)
        if real in seen:
            return
        seen.add(real)
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            yield folder
            return
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if os.path.isdir(path):  # unlike Path.is_dir, it raises nothing where access is denied
                yield from below(path)
            elif path.suffix.lower() in known:
                yield path

    for path in paths:
        yield from below(path) if os.path.isdir(path) else [path]
