"""Foreign images: any data set in the shape of the classifier's own images, some of its training split, any folder.

A foreign image takes the shape of the classifier's own images (`dsui.data.resize`). It is then normalised like an own
image, by the code that calls the model.

A folder, `--foreign folder:PATH`, may hold its images at any depth and in any order. If PATH/test is a folder, only its
images are used, otherwise all below PATH. The class of an image is the name of the folder that directly holds it, which
is all that a warning about shared classes can know; an image directly in PATH has the class "any".

To choose settings by, `--foreign NAME@train` draws images of another set's training split, always the same ones:

    indices = sorted(randperm(N)[:3000]), seed 0
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from dsui.backbones.preparation import Preparation
from dsui.data.dataset import ImageSet, Subset, subset
from dsui.data.features import features_of
from dsui.data.folder import FolderSet, readable_files
from dsui.data.image_files import image_files
from dsui.data.info import missing_folder
from dsui.data.registry import TRAIN_SUFFIX, dataset_info, default_root, load
from dsui.data.resize import BLOCK, reshape
from dsui.errors import DataError

ANY = "any"
"""The class of an image directly in the folder that the user named."""
DRAWN_IMAGES, DRAW_SEED = 3000, 0
"""How many images of a training split are drawn, and by which seed. Against as many own images or more, the standard
error of an AUROC A is then at most sqrt(A (1 - A) / 3000), 0.55 points at 90 %, and of the 100,000 files of a large
split most stay unread."""


@dataclass(frozen=True, eq=False)
class ReshapedSet:
    """A data set whose images are brought to `shape` when they are read."""

    images: ImageSet
    shape: tuple[int, int, int]

    @property
    def name(self) -> str:
        return self.images.name

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def labels(self) -> Tensor:
        return self.images.labels

    def read(self, indices: Tensor) -> Tensor:
        return torch.cat([reshape(self.images.read(block), self.shape) for block in indices.split(BLOCK)])


def as_foreign(images: ImageSet, like: ImageSet) -> ImageSet:
    """`images` in the shape of `like`; files of a folder are decoded at that size instead of being resized twice."""
    channels, height, width = like.shape
    if images.shape == like.shape:
        return images
    if features_of(images) is not None:
        raise DataError(
            f"{images.name} has {images.shape[0]:,} features and {like.name} has {channels:,}; name features of the "
            "same network."
        )
    if not {images.shape[0], channels} <= {1, 3}:
        raise DataError(
            f"{images.name} has {images.shape[0]} channels and {like.name} has {channels}; "
            "only grey and RGB images can be turned into each other."
        )
    if isinstance(images, Subset):
        return replace(images, images=as_foreign(images.images, like))
    if isinstance(images, FolderSet) and height == width:
        return replace(images, size=height, channels=channels)
    return ReshapedSet(images, like.shape)


def drawn_indices(total: int) -> Tensor:
    """[min(total, 3000)] indices in ascending order, which depend on the number of images alone."""
    generator = torch.Generator().manual_seed(DRAW_SEED)
    return torch.randperm(total, generator=generator)[:DRAWN_IMAGES].sort().values


def drawn_training_images(name: str, root: Path | None = None) -> ImageSet:
    """The drawn images of the training split of a data set; files that hold none of them are not read."""
    info, drawn = dataset_info(name), f"{name}{TRAIN_SUFFIX}"
    if info.load_some is not None:
        return replace(info.load_some(root or default_root(), "train", drawn_indices), name=drawn)
    whole = load(name, "train", root)
    return subset(whole, drawn_indices(len(whole.labels)), drawn)


def foreign_folder(
    path: Path, size: int, channels: int, skip_bad: bool = False, preparation: Preparation | None = None
) -> FolderSet:
    """The images of a folder, of `size` x `size` pixels; the rest is as in `dsui.data.folder.folder_set`."""
    top = path / "test" if (path / "test").is_dir() else path
    if not top.is_dir():
        raise missing_folder(top, "foreign images may lie in any folder, at any depth")
    files, skipped = readable_files(list(image_files([top])), channels, skip_bad)
    if not files:
        raise DataError(f"{top} holds no readable image; name a folder with foreign images in it or below.")
    names = [ANY if file.parent == top else file.parent.name for file in files]
    classes = tuple(sorted(set(names)))
    labels = torch.tensor([classes.index(name) for name in names], dtype=torch.int64)
    found = FolderSet(f"folder:{path}", classes, labels, tuple(files), size, channels, tuple(skipped))
    return replace(found, preparation=preparation)
