"""A user's own images: `folder:PATH`, in any format Pillow reads, laid out in one of two ways.

    PATH/train/CLASS/*.png and PATH/test/CLASS/*.png      split by the user
    PATH/CLASS/*.png, with neither PATH/train nor PATH/test      split by a rule, see below

Classes are the folders of train or of PATH, sorted by name; files are sorted too. Hidden files and files whose ending
no image has are ignored. Every image becomes one of `size` x `size` pixels: the shorter side is resized with
antialiasing, then the centre is cropped (see `dsui.data.decode`).

The rule takes about a fifth of each class for test, by the paths of the files below PATH (`dsui.data.split_rule`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.backbones.preparation import Preparation
from dsui.data.dataset import MemorySet
from dsui.data.decode import ImageError, decode_image, extensions, read_header, read_pixels
from dsui.data.info import missing_folder
from dsui.data.read_all import read_all
from dsui.data.split_rule import chosen_for_test
from dsui.errors import DataError
from dsui.resources import usable_processors


@dataclass(frozen=True)
class SkippedFile:
    """A file that was left out, and why."""

    file: Path
    reason: str


@dataclass(frozen=True, eq=False)
class FolderSet:
    """Images that are decoded when they are read, so that a set may be larger than memory; worker processes can use it.

    `skipped` holds the files that were left out on request. `set_aside` is the number of images that the rule takes for
    test, 0 where the user has split them.
    """

    name: str
    classes: tuple[str, ...]
    labels: Tensor
    files: tuple[Path, ...]
    size: int
    channels: int
    skipped: tuple[SkippedFile, ...]
    set_aside: int = 0
    preparation: Preparation | None = None
    """How an image of `size` pixels is made; None: its central square, resized."""

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size

    def read(self, indices: Tensor) -> Tensor:
        return self._decode([self.files[index] for index in indices.tolist()])

    def in_memory(self) -> MemorySet:
        """Every image decoded once, by all processors."""
        return MemorySet(self.name, self.classes, self._decode(self.files), self.labels)

    def _decode(self, files: Sequence[Path]) -> Tensor:
        return read_all(
            files, partial(_decode, size=self.size, channels=self.channels, preparation=self.preparation), self.shape
        )


def folder_set(
    path: Path,
    split: str,
    size: int = 32,
    channels: int = 3,
    skip_bad: bool = False,
    preparation: Preparation | None = None,
) -> FolderSet:
    """The images of one split. A file without the header of an image is an error that names it.

    With `skip_bad`, bad files are left out; every file is decoded once at the start, because only that finds truncated
    ones before training. Without it, a truncated file is an error when it is read.
    """
    if size < 1 or channels not in {1, 3}:
        raise DataError(
            f"Images of {size} pixels and {channels} channels are not possible; choose a size of at least 1 and "
            "1 or 3 channels."
        )
    top, classes, files_of_class, set_aside = split_files(path, split)
    files, labels, skipped = [], [], []
    for name, candidates in files_of_class.items():
        good, bad = readable_files(candidates, channels, skip_bad)
        if not good and split == "train":
            raise DataError(f"{top / name} holds no readable image for training; add images or remove the class.")
        files += good
        labels += [classes.index(name)] * len(good)
        skipped += bad
    if not files:
        raise DataError(f"{top} holds no readable image for {split}; add images below {top}/CLASS.")
    class_labels = torch.tensor(labels, dtype=torch.int64)
    return FolderSet(
        f"folder:{path}", classes, class_labels, tuple(files), size, channels, tuple(skipped), set_aside, preparation
    )


class SplitFiles(NamedTuple):
    """The files of one split by class, none of them opened yet.

    `top` is the folder that holds the folders of the classes, `classes` are all classes of the data set, `set_aside` is
    as in `FolderSet`.
    """

    top: Path
    classes: tuple[str, ...]
    files_of_class: dict[str, list[Path]]
    set_aside: int


def split_files(path: Path, split: str) -> SplitFiles:
    """The files on disk of one split."""
    if not is_split(path):
        return _split_by_rule(path, split)
    classes = _class_names(path / "train")
    here = classes if split == "train" else _class_names(path / split)
    if unknown := sorted(set(here) - set(classes)):
        raise DataError(
            f"{path / split / unknown[0]} has no counterpart in {path / 'train'}; add training images or remove it."
        )
    files = {name: _class_files(path / split / name, required=split == "train") for name in here}
    return SplitFiles(path / split, classes, files, 0)


def is_split(path: Path) -> bool:
    """Whether the user has split the images into train and test."""
    return (path / "train").is_dir() or (path / "test").is_dir()


def files_for_test(files: Sequence[Path], path: Path) -> frozenset[Path]:
    """Those of one class's `files`, which lie below `path`, that the rule takes for test."""
    names = [os.fsencode(file.relative_to(path).as_posix()) for file in files]
    return frozenset(files[place] for place in chosen_for_test(names))


def readable_files(files: list[Path], channels: int, skip_bad: bool) -> tuple[list[Path], list[SkippedFile]]:
    """The files with the header of an image and, with `skip_bad`, pixels that can be decoded; and the other files.

    Without `skip_bad`, the first bad file is an error.
    """
    faults = [_fault(read_header, file) for file in files]
    if skip_bad:
        decode = partial(decode_image, channels=channels)
        with ThreadPoolExecutor(usable_processors()) as pool:
            faults = list(pool.map(lambda file, fault: fault or _fault(decode, file), files, faults))
    bad = [SkippedFile(file, str(fault)) for file, fault in zip(files, faults, strict=True) if fault]
    if bad and not skip_bad:
        raise _unusable(bad[0].file, bad[0].reason)
    return [file for file, fault in zip(files, faults, strict=True) if not fault], bad


def _split_by_rule(path: Path, split: str) -> SplitFiles:
    classes = _class_names(path)
    files = {name: _class_files(path / name) for name in classes}
    test = {name: files_for_test(files[name], path) for name in classes}
    chosen = {name: [file for file in files[name] if (file in test[name]) == (split == "test")] for name in classes}
    files_of_class = {name: chosen[name] for name in classes if chosen[name]}
    return SplitFiles(path, classes, files_of_class, sum(map(len, test.values())))


def _class_names(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise missing_folder(
            folder, "own images lie in PATH/train/CLASS and PATH/test/CLASS, or all of them in PATH/CLASS"
        )
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise DataError(f"{folder} holds no folder; create one for every class and put its images there.")
    return tuple(names)


def _class_files(folder: Path, required: bool = True) -> list[Path]:
    """The image files directly in the folder of a class; none is an error where they are `required`."""
    known = extensions()
    files = sorted(
        entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in known and not entry.name.startswith(".") and entry.is_file()
    )
    if required and not files:
        raise DataError(f"{folder} holds no image; add images or remove the class.")
    return files


def _fault(attempt: Callable[[Path], object], file: Path) -> ImageError | None:
    try:
        attempt(file)
    except ImageError as error:
        return error
    return None


def _decode(file: Path, size: int, channels: int, preparation: Preparation | None) -> NDArray[np.uint8]:
    try:
        return read_pixels(file, channels, size, preparation)
    except ImageError as error:
        raise _unusable(file, str(error)) from error


def _unusable(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file} cannot be used ({reason}); repair or remove it, or leave such files out with --skip-bad "
        "(in Python and in grids: skip_bad)."
    )
