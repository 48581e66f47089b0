"""A user's own images: `folder:PATH`, in any format Pillow reads, laid out in one of two ways.

    PATH/train/CLASS/*.png and PATH/test/CLASS/*.png      split by the user
    PATH/CLASS/*.png, with neither PATH/train nor PATH/test      split by the rule of `set_aside`

Classes are the folders of train or of PATH, sorted by name; files are sorted too. Hidden files and files whose ending
is no image's are passed over. Every image becomes one of `size` x `size` pixels: the shorter side resized with
antialiasing, then the centre cropped (see `decode`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.decode import ImageError, extensions, header, picture, pixels, read_all, square
from dsui.data.info import missing_folder
from dsui.errors import DataError

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


def image_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files among `paths`, whatever their names, and the image files in and below the folders, sorted by name.

    In folders hidden files and files whose ending is no image's are passed over. Links are followed, but no folder is
    entered twice. What does not exist or cannot be listed is named as it is: reading it tells why.
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
            if os.path.isdir(path):  # unlike Path.is_dir no error where access is denied
                yield from below(path)
            elif path.suffix.lower() in known:
                yield path

    for path in paths:
        yield from below(path) if os.path.isdir(path) else [path]


@dataclass(frozen=True)
class Skipped:
    """A file left out, and why."""

    file: Path
    reason: str


@dataclass(frozen=True, eq=False)
class FolderSet:
    """Images decoded when they are read, so that a set larger than memory can be used; it travels to worker processes.

    `skipped` holds the files left out on request, `set_aside` says how many are for test by rule, 0 where the user has
    split them.
    """

    name: str
    classes: tuple[str, ...]
    labels: Tensor
    files: tuple[Path, ...]
    size: int
    channels: int
    skipped: tuple[Skipped, ...]
    set_aside: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size

    def read(self, indices: Tensor) -> Tensor:
        decode = partial(_decode, size=self.size, channels=self.channels)
        return read_all([self.files[index] for index in indices.tolist()], decode, self.shape)

    def in_memory(self) -> MemorySet:
        """Every image decoded once, by all processors."""
        decode = partial(_decode, size=self.size, channels=self.channels)
        return MemorySet(self.name, self.classes, read_all(self.files, decode, self.shape), self.labels)


def folder_set(path: Path, split: str, size: int = 32, channels: int = 3, skip_bad: bool = False) -> FolderSet:
    """The images of one split. A file whose header is no image's is an error that names it.

    With `skip_bad` every file is decoded once at the start, since only then is a truncated one found in time, and bad
    files are left out. Without it a truncated file is an error when it is read.
    """
    if size < 1 or channels not in {1, 3}:
        raise DataError(
            f"Images of {size} pixels and {channels} channels cannot be made; choose a size and 1 or 3 channels."
        )
    top, classes, found, set_aside = split_files(path, split)
    files, labels, skipped = [], [], []
    for name in found:
        good, bad = sift(found[name], channels, skip_bad)
        if not good and split == "train":
            raise DataError(f"{top / name} holds no readable image for training; add images or remove the class.")
        files += good
        labels += [classes.index(name)] * len(good)
        skipped += bad
    if not files:
        raise DataError(f"{top} holds no readable image for {split}; add images below {top}/CLASS.")
    known = torch.tensor(labels, dtype=torch.int64)
    return FolderSet(f"folder:{path}", classes, known, tuple(files), size, channels, tuple(skipped), set_aside)


def is_split(path: Path) -> bool:
    """Whether the user has split the images into train and test."""
    return (path / "train").is_dir() or (path / "test").is_dir()


class SplitFiles(NamedTuple):
    """The files of one split by class, none of them opened yet; `top` is the folder that holds those of the classes.

    `classes` are all those of the data set, `set_aside` is as in `FolderSet`.
    """

    top: Path
    classes: tuple[str, ...]
    found: dict[str, list[Path]]
    set_aside: int


def split_files(path: Path, split: str) -> SplitFiles:
    """What lies on disk for one split."""
    if not is_split(path):
        return _split_by_rule(path, split)
    classes = _class_names(path / "train")
    found = classes if split == "train" else _class_names(path / split)
    if unknown := sorted(set(found) - set(classes)):
        raise DataError(
            f"{path / split / unknown[0]} has no counterpart in {path / 'train'}; add training images or remove it."
        )
    files = {name: _image_files(path / split / name, needed=split == "train") for name in found}
    return SplitFiles(path / split, classes, files, 0)


def _split_by_rule(path: Path, split: str) -> SplitFiles:
    classes = _class_names(path)
    whole = {name: _image_files(path / name) for name in classes}
    apart = {name: for_test(files, path) for name, files in whole.items()}
    chosen = {
        name: [file for file in files if (file in apart[name]) == (split == "test")] for name, files in whole.items()
    }
    found = {name: files for name, files in chosen.items() if files}
    return SplitFiles(path, classes, found, sum(map(len, apart.values())))


def _class_names(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise missing_folder(
            folder, "own images lie in PATH/train/CLASS and PATH/test/CLASS, or all of them in PATH/CLASS"
        )
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise DataError(f"{folder} holds no folder; make one for every class and put its images there.")
    return tuple(names)


def _image_files(folder: Path, needed: bool = True) -> list[Path]:
    known = extensions()
    files = sorted(
        entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in known and not entry.name.startswith(".") and entry.is_file()
    )
    if needed and not files:
        raise DataError(f"{folder} holds no image; add images or remove the class.")
    return files


def sift(files: list[Path], channels: int, skip_bad: bool) -> tuple[list[Path], list[Skipped]]:
    """The files whose header is an image's and, with `skip_bad`, whose pixels can be decoded; and the others."""
    faults = [_fault(header, file) for file in files]
    if skip_bad:
        decode = partial(picture, channels=channels)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = list(pool.map(lambda file, fault: fault or _fault(decode, file), files, faults))
    bad = [Skipped(file, str(fault)) for file, fault in zip(files, faults, strict=True) if fault]
    if bad and not skip_bad:
        raise _unusable(bad[0].file, bad[0].reason)
    return [file for file, fault in zip(files, faults, strict=True) if not fault], bad


def _fault(attempt: Callable[[Path], object], file: Path) -> ImageError | None:
    try:
        attempt(file)
    except ImageError as error:
        return error
    return None


def _decode(file: Path, size: int, channels: int) -> NDArray[np.uint8]:
    try:
        return pixels(square(picture(file, channels), size))
    except ImageError as error:
        raise _unusable(file, str(error)) from error


def _unusable(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file} cannot be used ({reason}); mend or remove it, or leave such files out with --skip-bad "
        "(in Python and in grids: skip_bad)."
    )
