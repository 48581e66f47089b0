"""What `folder:PATH` holds beside the images that it is read for, and why nothing is read of it.

Hidden files and folders are meant to be passed over, so they are not named. A folder is one line, with the number of
images in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dsui.data.decode import extensions
from dsui.data.folder import is_split
from dsui.data.image_files import image_files

SPLITS = ("train", "test")


class PassedOver(NamedTuple):
    """A file, or a folder with `images` images in it, and why they are no part of the data set."""

    path: Path
    reason: str
    images: int = 1


def passed_over(path: Path) -> list[PassedOver]:
    """Sorted by path."""
    if not is_split(path):
        return list(_beside_classes(path))
    tops = [path / split for split in SPLITS if (path / split).is_dir()]
    found = [each for top in tops for each in _beside_classes(top)]
    for entry in _entries(path):
        if entry in tops:
            continue
        found += _folder(entry, "beside train and test") if entry.is_dir() else _file(entry, "beside train and test")
    return sorted(found)


def count_of(found: list[PassedOver]) -> int:
    """Files and images in folders."""
    return sum(each.images for each in found)


def _beside_classes(top: Path) -> Iterator[PassedOver]:
    """What lies beside the folders of the classes in `top`, and in these beside their images."""
    for entry in _entries(top):
        if not entry.is_dir():
            yield from _file(entry, "beside the folders of the classes")
            continue
        for inner in _entries(entry):
            if inner.is_dir():
                yield from _folder(inner, "in a folder inside a class")
            elif inner.suffix.lower() not in extensions():
                yield from _file(inner, "its ending is that of no image")
            elif not inner.is_file():
                yield from _file(inner, "it is no file")


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _folder(folder: Path, reason: str) -> Iterator[PassedOver]:
    if images := sum(os.path.isfile(file) for file in image_files([folder])):
        yield PassedOver(folder, reason, images)


def _file(file: Path, reason: str) -> Iterator[PassedOver]:
    yield PassedOver(file, "a link to nothing" if file.is_symlink() and not file.exists() else reason)
