"""The data sets by name, as `--data` spells them; adding one is its file, its test and a line here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from dsui.data.info import missing_folder
from dsui.errors import DataError
from dsui.excerpt import excerpt
from dsui.lazy_registry import LazyRegistry
from dsui.spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from dsui.backbones.preparation import Preparation
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
TRAIN_SUFFIX = "@train"
"""Ends the name of foreign images of a training split, as in cifar100@train. Settings are chosen by these, because the
test split, which the plain name means, must stay unread until the choice is made."""
TEST_ONLY = ("photos",)
"""The data sets without a training split, named here because looking it up would import PyTorch."""
FOLDER = "folder:"
"""Begins the name of a user's own images, as in folder:photos."""
FEATURES = "features:"
"""Begins the name of a file of a user's own features, as in features:photos.safetensors."""
OWN = (FOLDER, FEATURES)
"""What begins the names of a user's own data, which are paths."""
FOLDER_SHAPE = (3, 32, 32)
"""The default (channels, height, width) of a folder's images."""
ARRAYS = "arrays"
"""The name of the data in runs on arrays from Python."""
SPLITS = ("train", "test")


class FolderOptions(TypedDict, total=False):
    """How a user's own images are read; see `dsui.data.folder.folder_set`. Published sets know `size` alone."""

    size: int
    channels: int
    skip_bad: bool
    preparation: Preparation | None


def load(name: str, split: str, root: Path | None = None, **options: Unpack[FolderOptions]) -> ImageSet:
    """The split "train" or "test" of a data set that lies below `root`, of `folder:PATH` or of `features:FILE`.

    `size` is the side of the images in pixels; published images may be made smaller (`dsui.data.resize`).
    """
    if name.startswith(OWN) and split not in SPLITS:
        raise DataError(f"{name} has no split {excerpt(split)}; choose train or test.")
    if name.startswith(FEATURES):
        from dsui.data.features import feature_set

        return feature_set(own_path(name), split)
    if name.startswith(FOLDER):
        from dsui.data.folder import folder_set  # PyTorch, which names alone do not need

        return folder_set(folder_path(name), split, **options)
    entry = dataset_info(name)
    size = options.pop("size", None)
    if options:
        raise DataError(f"{name} is used as published; {' and '.join(options)} may be chosen for folder:PATH only.")
    if split not in entry.splits:
        raise DataError(f"{name} has no split {excerpt(split)}; choose {' or '.join(entry.splits)}{or_folder(name)}.")
    images = entry.load(root or default_root(), split)
    if size is None:
        return images
    from dsui.data.resize import made_smaller

    return made_smaller(images, size)


def dataset_info(name: str) -> DatasetInfo:
    """The facts about a data set by its name; a wrong name is answered with the nearest one."""
    if name in DATASETS:
        return DATASETS[name]
    if name == ARRAYS:
        raise DataError(
            "the run was trained on arrays in memory, which are not on disk; evaluate it from Python with "
            "UncertaintyClassifier.load(RUN).score(images, labels), or train on a folder of images."
        )
    if os.path.isdir(os.path.expanduser(name)):
        raise DataError(f"There is no data set {excerpt(name)}; a folder is named {FOLDER}{name}.")
    suggestion = nearest(name, DATASETS)
    advice = f"did you mean {suggestion}?" if suggestion else f"choose from {', '.join(DATASETS)} and folder:PATH."
    raise DataError(f"There is no data set {excerpt(name)}; {advice}")


def foreign_split(name: str) -> tuple[str, str]:
    """The data set and the split that the name of foreign images means: ("cifar100", "train") for cifar100@train.

    Without the suffix it is the test split. A folder:PATH or features:FILE is always that path, also where it ends in
    the suffix.
    """
    base, at, split = name.partition("@")
    if name.startswith(OWN) or not at:
        return name, "test"
    if base not in DATASETS:
        dataset_info(base)
    if base in TEST_ONLY:
        raise DataError(f"{base} has no training images, so there is no {name}; choose another data set.")
    if at + split != TRAIN_SUFFIX:
        raise DataError(
            f"There are no foreign images {excerpt(name)}; write {base} for its test split or {base}{TRAIN_SUFFIX} for "
            "its training split."
        )
    return base, split


def or_folder(name: str) -> str:
    """Advice to add where the name of a data set does not work and a folder of that name exists."""
    return f", or {FOLDER}{name} for the folder of that name" if Path(name).is_dir() else ""


def folder_path(name: str) -> Path:
    """PATH of `folder:PATH`."""
    if not (path := name.removeprefix(FOLDER)):
        raise DataError("folder: needs a path, as in folder:photos.")
    return Path(path).expanduser()


def own_path(name: str) -> Path:
    """FILE of `features:FILE`, or PATH of `folder:PATH`."""
    if name == FEATURES:
        raise DataError("features: needs a file, as in features:photos.safetensors.")
    return Path(name.removeprefix(FEATURES)).expanduser() if name.startswith(FEATURES) else folder_path(name)


def check_present(name: str, root: Path | None) -> None:
    """Raise unless the foreign images of this name, of a data set or in the folder of folder:PATH, are there."""
    if name.startswith(FOLDER):
        if not (folder := folder_path(name)).is_dir():
            raise missing_folder(folder, "foreign images may lie in any folder, at any depth")
        return
    if name.startswith(FEATURES):
        if not (file := own_path(name)).is_file():
            raise DataError(f"{file} is missing; write it with `dsui embed`, or correct the path.")
        return
    base, split = foreign_split(name)
    if split not in dataset_info(base).present(place := root or default_root()):
        what = base if split == "test" else f"the training split of {base}"
        raise DataError(f"{what} is not below {place}; run `dsui data get {base}`, or name its folder with --root.")


def default_root() -> Path:
    """Where data sets lie unless a command says otherwise: $DSUI_DATA, else ~/.cache/dsui/data."""
    return Path(os.environ.get("DSUI_DATA") or "~/.cache/dsui/data").expanduser()
