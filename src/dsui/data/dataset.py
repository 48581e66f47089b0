"""The interface of every data set: labelled 8-bit images of one shape, read by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class ImageSet(Protocol):
    """Labelled images of one shape. A pipeline needs `read` alone, so pixels may lie in memory or on disk."""

    @property
    def name(self) -> str:
        """As the user wrote it: "cifar10", "folder:PATH"."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; label i is classes[i]."""
        ...

    @property
    def labels(self) -> Tensor:
        """[N] int64."""
        ...

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of every image."""
        ...

    def read(self, indices: Tensor) -> Tensor:
        """uint8 [B, channels, height, width] for int64 indices [B]."""
        ...


@dataclass(frozen=True)
class MemorySet:
    """A data set held as one uint8 tensor [N, channels, height, width], or as float32 features [N, M, 1, 1]."""

    name: str
    classes: tuple[str, ...]
    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        features = self.images.dtype == torch.float32 and self.images.shape[2:] == (1, 1)
        if not (self.images.dtype == torch.uint8 or features) or self.images.ndim != 4:
            raise ValueError(f"{self.name}: images must be uint8 [N, channels, height, width].")
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.images),):
            raise ValueError(f"{self.name}: labels must be int64, one for each of {len(self.images)} images.")

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def read(self, indices: Tensor) -> Tensor:
        return self.images[indices]


@dataclass(frozen=True, eq=False)
class Subset:
    """The images `indices` of another data set, read through it, with their own labels and class names."""

    images: ImageSet
    indices: Tensor
    name: str
    classes: tuple[str, ...]
    labels: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.images.shape

    def read(self, indices: Tensor) -> Tensor:
        return self.images.read(self.indices[indices])


def subset(
    images: ImageSet,
    indices: Tensor,
    name: str,
    classes: tuple[str, ...] | None = None,
    labels: Tensor | None = None,
) -> ImageSet:
    """The images `indices` of a data set, with their class names and labels unless others are given."""
    classes = images.classes if classes is None else classes
    labels = images.labels[indices] if labels is None else labels
    if isinstance(images, MemorySet):
        return MemorySet(name, classes, images.images[indices], labels)
    return Subset(images, indices, name, classes, labels)
