"""The data sets by name, as `--data` spells them; adding one is its file, its test and a line here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from dsui.data.info import missing_folder
from dsui.errors import DataError
from dsui.lazy_registry import LazyRegistry
from dsui.spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from dsui.data.dataset import ImageSet
    from dsui.data.info import DatasetInfo

DATASETS: LazyRegistry[DatasetInfo] = LazyRegistry(
    {
        "digits": "dsui.data.digits:DIGITS",
        "digits-256": "dsui.data.digits:DIGITS_256",
        "photos": "dsui.data.photos:PHOTOS",
        "cifar10": "dsui.data.cifar:CIFAR10",
        "cifar100": "dsui.data.cifar:CIFAR100",
        "svhn": "dsui.data.svhn:SVHN",
        "tiny-imagenet": "dsui.data.tiny_imagenet:TINY_IMAGENET",
        "mnist": "dsui.data.idx:MNIST",
        "fashion-mnist": "dsui.data.idx:FASHION_MNIST",
    }
)
PSEUDO: LazyRegistry[Callable[[torch.Tensor, torch.Tensor, torch.Generator], torch.Tensor]] = LazyRegistry(
    {
        "blends": "dsui.data.pseudo:blends",
        "patches": "dsui.data.pseudo:patches",
        "gaussian": "dsui.data.pseudo:gaussian",
    }
)
"""Foreign images made from a run's own: 8-bit images [N, C, H, W], labels [N] and a generator to such images."""
FOLDER = "folder:"
"""Begins the name of a user's own images, as in folder:photos."""
FOLDER_SHAPE = (3, 32, 32)
"""The default (channels, height, width) of a folder's images."""
ARRAYS = "arrays"
"""The name of the data in runs on arrays from Python."""
SPLITS = ("train", "test")


class FolderOptions(TypedDict, total=False):
    """How a user's own images are read; see `dsui.data.folder.folder_set`."""

    size: int
    channels: int
    skip_bad: bool


def load(name: str, split: str, root: Path | None = None, **options: Unpack[FolderOptions]) -> ImageSet:
    """The split "train" or "test" of a data set that lies below `root`, or of `folder:PATH`."""
    if name.startswith(FOLDER):
        if split not in SPLITS:
            raise DataError(f"{name} has no split {split!r}; choose train or test.")
        from dsui.data.folder import folder_set  # PyTorch, which names alone do not need

        return folder_set(folder_path(name), split, **options)
    entry = dataset_info(name)
    if options:
        raise DataError(f"{name} is used as published; {' and '.join(options)} may be chosen for folder:PATH only.")
    if split not in entry.splits:
        raise DataError(f"{name} has no split {split!r}; choose {' or '.join(entry.splits)}{or_folder(name)}.")
    return entry.load(root or default_root(), split)


def dataset_info(name: str) -> DatasetInfo:
    """The facts about a data set by its name; a wrong name is answered with the nearest one."""
    if name in DATASETS:
        return DATASETS[name]
    if name == ARRAYS:
        raise DataError("the run was trained on arrays in memory, which are not on disk; evaluate it from Python.")
    if os.path.isdir(os.path.expanduser(name)):
        raise DataError(f"There is no data set {name!r}; a folder is named {FOLDER}{name}.")
    suggestion = nearest(name, DATASETS)
    advice = f"did you mean {suggestion}?" if suggestion else f"choose from {', '.join(DATASETS)} and folder:PATH."
    raise DataError(f"There is no data set {name!r}; {advice}")


def or_folder(name: str) -> str:
    """Advice to add where the name of a data set does not work and a folder of that name exists."""
    return f", or {FOLDER}{name} for the folder of that name" if Path(name).is_dir() else ""


def folder_path(name: str) -> Path:
    """PATH of `folder:PATH`."""
    if not (path := name.removeprefix(FOLDER)):
        raise DataError("folder: needs a path, as in folder:photos.")
    return Path(path).expanduser()


def check_present(name: str, root: Path | None) -> None:
    """Raise unless the test images of a data set, or the folder of folder:PATH, are there."""
    if name.startswith(FOLDER):
        if not (folder := folder_path(name)).is_dir():
            raise missing_folder(folder, "foreign images may lie in any folder, at any depth")
    elif "test" not in dataset_info(name).present(place := root or default_root()):
        raise DataError(f"{name} is not below {place}; run `dsui data get {name}`, or name its folder with --root.")


def default_root() -> Path:
    """Where data sets lie unless a command says otherwise: $DSUI_DATA, else ~/.cache/dsui/data."""
    return Path(os.environ.get("DSUI_DATA") or "~/.cache/dsui/data").expanduser()
