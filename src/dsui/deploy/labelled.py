"""Labelled images in the forms that users have them: arrays or tensors, a DataLoader, a folder with train/CLASS/*."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dsui.backbones.preparation import Preparation
from dsui.data.dataset import ImageSet, MemorySet, subset
from dsui.data.folder import split_files
from dsui.data.pipeline import BLOCK
from dsui.data.registry import ARRAYS, FEATURES, FOLDER, load
from dsui.data.sampling import check_weights
from dsui.deploy.inputs import from_arrays


class Labelled(NamedTuple):
    """Images with their labels [N], named as the user names them."""

    images: ImageSet | Tensor
    """A folder's images, or uint8 [N, C, H, W]."""
    labels: NDArray[Any]

    def blocks(self) -> Iterator[Tensor]:
        """uint8 [B, C, H, W], block by block."""
        for indices in torch.arange(len(self.labels)).split(BLOCK):
            yield self.images[indices] if isinstance(self.images, Tensor) else self.images.read(indices)


def labelled(
    images: Any,
    labels: Any,
    split: str,
    size: int,
    channels: int | None,
    skip_bad: bool = False,
    preparation: Preparation | None = None,
) -> Labelled:
    """Images and labels in one form. The other arguments say how a folder is read; arrays must have these channels
    unless they are None."""
    if isinstance(images, str | Path):
        if labels is not None:
            raise ValueError(f"{images} has its own labels, the names of its folders; leave out the other labels.")
        if str(images).startswith(FEATURES):
            raise ValueError(
                f"{images} are features and no images; train on them with `dsui train --data {images}`, or with "
                "dsui.sklearn.DensityClassifier on arrays."
            )
        name = str(images) if str(images).startswith(FOLDER) else f"{FOLDER}{images}"
        found = load(name, split, size=size, channels=channels or 3, skip_bad=skip_bad, preparation=preparation)
        return Labelled(found, np.array(found.classes)[found.labels.numpy()])
    if isinstance(images, DataLoader):
        if labels is not None:
            raise ValueError("a DataLoader has its own labels; leave out the other labels.")
        images, labels = _read_all(images)
    if isinstance(images, Dataset):
        folder = getattr(images, "root", None)
        path = f", as fit({str(folder)!r})" if isinstance(folder, str | Path) else ""
        raise ValueError(
            f"{type(images).__name__} is a Dataset of PyTorch; give the path of its folder{path}, or a DataLoader of "
            "it whose images are tensors of one size."
        )
    if labels is None:
        raise ValueError("the labels are missing; give one for each image.")
    pixels, names = from_arrays(images, channels), as_labels(labels)
    if len(pixels) != len(names):
        raise ValueError(f"there are {len(pixels)} images and {len(names)} labels; give one label for each image.")
    return Labelled(pixels, names)


def count_classes(images: Any, labels: Any) -> int | None:
    """How many classes these have, without reading an image; None where only reading tells."""
    if isinstance(images, str | Path) and not str(images).startswith(FEATURES):
        return len(split_files(Path(str(images).removeprefix(FOLDER)), "train").files_of_class)
    return None if labels is None else len(np.unique(as_labels(labels)))


def weighted(data: Labelled, sample_weight: Any) -> tuple[Labelled, Tensor | None]:
    """The images with a weight above 0, and their weights [N] in float64; all of them where there are no weights."""
    if sample_weight is None:
        return data, None
    weights = torch.as_tensor(np.asarray(sample_weight), dtype=torch.float64)
    check_weights(weights, len(data.labels))
    kept = (weights > 0).nonzero().flatten()
    if len(kept) == len(weights):
        return data, weights
    images = data.images
    images = images[kept] if isinstance(images, Tensor) else subset(images, kept, images.name)
    return Labelled(images, data.labels[kept.numpy()]), weights[kept]


def training_set(data: Labelled, num_classes: int | None) -> tuple[ImageSet, NDArray[Any]]:
    """The images to train with, and the classes by label; `num_classes`, where given, must be the number of classes."""
    classes: NDArray[Any] = np.unique(data.labels)
    if num_classes is not None:
        _check_classes(classes, num_classes)
    if len(classes) < 2:
        raise ValueError(f"all labels are {classes[0]}; a classifier needs images of at least two classes.")
    if not isinstance(data.images, Tensor):
        return data.images, np.array(data.images.classes)
    height, width = data.images.shape[2:]
    if height != width:
        raise ValueError(f"the images have {height}x{width} pixels; crop or resize them to squares.")
    indices = torch.from_numpy(np.searchsorted(classes, data.labels)).long()
    return MemorySet(ARRAYS, tuple(map(str, classes)), data.images, indices), classes


def as_labels(labels: Any) -> NDArray[Any]:
    """[N] integers or text."""
    found: NDArray[Any] = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    if found.ndim != 1:
        raise ValueError(f"the labels have the shape {list(found.shape)}; give one label for each image.")
    if found.dtype.kind == "O" and all(isinstance(label, str) for label in found):
        found = found.astype(str)
    if found.dtype.kind not in "biuU":
        raise ValueError(f"the labels are {found.dtype}; give integers or text.")
    return found


def _check_classes(classes: NDArray[Any], num_classes: int) -> None:
    if classes.dtype.kind in "iu" and (classes[0] < 0 or classes[-1] >= num_classes):
        raise ValueError(
            f"the labels run from {classes[0]} to {classes[-1]}; {num_classes} classes need 0 to {num_classes - 1}."
        )
    if len(classes) != num_classes:
        raise ValueError(
            f"the labels name {len(classes)} classes and num_classes is {num_classes}; give images of every class, or "
            "leave num_classes out."
        )


def _read_all(loader: DataLoader[Any]) -> tuple[Tensor, Tensor]:
    """All images and labels of a loader."""
    parts = []
    for batch in loader:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ValueError("the DataLoader must give pairs of images and labels.")
        parts.append(tuple(map(torch.as_tensor, batch)))
    if not parts:
        raise ValueError("the DataLoader gives no images; give at least one batch.")
    images, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    return images, labels
