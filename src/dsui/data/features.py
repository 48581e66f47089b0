"""Features as data, without images: `features:FILE`, read from a file of `dsui.data.feature_file`.

A vector of M features is an "image" of M channels and one pixel, in float32 and neither scaled nor augmented. So
everything that serves images serves features: class splits, held-out images, loaders, training, cached outputs.

Where the file does not say which rows are for test, the rule for folders decides, by the names of the rows, or by their
numbers where they have none (see `dsui.data.folder`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from dsui.data.augment import Transform
from dsui.data.dataset import ImageSet, MemorySet, Subset
from dsui.data.feature_file import BLOCK, FeatureFile, read_feature_file
from dsui.data.split_rule import chosen_for_test
from dsui.errors import DataError

STEPS = 16
"""In an epoch, by default and at least."""
NOISE_BLOCK = 64
"""Columns that are drawn at once."""


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """N vectors of M features. `rows` are their places in the file, `set_aside` is the number of rows that the rule
    takes for test, 0 where the file says which they are."""

    name: str
    classes: tuple[str, ...]
    labels: Tensor
    file: FeatureFile = field(repr=False)
    rows: Tensor
    set_aside: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.file.features.shape[1], 1, 1

    def read(self, indices: Tensor) -> Tensor:
        """float32 [B, M, 1, 1]."""
        return self.file.features[self.rows[indices]].float()[:, :, None, None]

    def digest(self) -> str:
        """The hash of all rows of the file."""
        digest = hashlib.sha256()
        for block in self.file.features.split(BLOCK):
            digest.update(block.contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()[:16]


class FeatureTransform(Transform):
    """Features are inputs as they are."""

    def plain(self, images: Tensor) -> Tensor:
        return images.to(self.scale.dtype)

    def augmented(self, images: Tensor, indices: Tensor, epoch: int | Tensor) -> Tensor:
        del indices, epoch
        return self.plain(images)


def feature_set(path: Path, split: str) -> FeatureSet:
    """The rows of one split, with their labels."""
    file = read_feature_file(path)
    if file.labels is None:
        raise DataError(f"{path} holds no `labels`, which training and evaluation need; add one for each row.")
    for_test, aside = _rows_for_test(file, file.labels)
    trained = set(file.labels[~for_test].unique().tolist())
    if unknown := sorted(set(file.labels[for_test].unique().tolist()) - trained):
        raise DataError(
            f"{path}: class {file.classes[unknown[0]]} has rows for test and none for training; add some or remove it."
        )
    classes = tuple(file.classes[label] for label in sorted(trained))
    place = torch.full((len(file.classes),), -1)
    place[sorted(trained)] = torch.arange(len(trained))
    rows = (for_test if split == "test" else ~for_test).nonzero().flatten()
    if len(rows) == 0:
        raise DataError(f"{path} has no rows for {split}; mark some in `split`, or leave it out to split by rule.")
    return FeatureSet(f"features:{path}", classes, place[file.labels[rows]], file, rows, aside)


def has_test_rows(path: Path) -> bool:
    """Whether the file marks rows for test, or leaves that to the rule."""
    split = read_feature_file(path).split
    return split is None or bool(split.any())


def foreign_features(path: Path) -> FeatureSet:
    """The rows for test where the file says which they are, otherwise all; labels are not needed."""
    file = read_feature_file(path)
    whole = torch.ones(len(file.features), dtype=torch.bool)
    chosen = whole if file.split is None or not file.split.any() else file.split
    rows = chosen.nonzero().flatten()
    labels = torch.zeros(len(rows), dtype=torch.int64) if file.labels is None else file.labels[rows]
    return FeatureSet(f"features:{path}", file.classes or ("any",), labels, file, rows)


def usual_batch(rows: int) -> int:
    """The batch for that many training rows: a power of two from 16 to 512, so small that an epoch has 16 steps if it
    can. A few hundred rows in batches of 256 would be one step an epoch, and nothing would be learned."""
    return 1 << min(max((rows // STEPS).bit_length() - 1, 4), 9)


def features_of(images: ImageSet) -> FeatureSet | None:
    """The features behind a data set; None for images."""
    while isinstance(images, Subset):
        images = images.images
    return images if isinstance(images, FeatureSet) else None


def hold_features(images: ImageSet) -> bool:
    """Whether a data set holds features, from a file or in memory, and no images."""
    while isinstance(images, Subset):
        images = images.images
    return isinstance(images, FeatureSet) or (isinstance(images, MemorySet) and images.images.is_floating_point())


def shuffled_features(like: ImageSet, count: int, seed: int) -> Tensor:
    """float32 [count, M, 1, 1]: every feature is drawn alone among the values that it has in `like`.

    This is noise for features, as independent uniform pixels are for images: each feature is as usual, and none goes
    with the others.
    """
    total = len(like.labels)
    values = torch.cat([like.read(block) for block in torch.arange(total).split(BLOCK)]).flatten(1)
    generator = torch.Generator().manual_seed(seed)
    parts = [
        columns.gather(0, torch.randint(total, (count, columns.shape[1]), generator=generator))
        for columns in values.split(NOISE_BLOCK, 1)
    ]
    return torch.cat(parts, 1)[:, :, None, None]


def transform_for(images: ImageSet, transform: Transform) -> Transform:
    """`transform`, or for features one that leaves them as they are."""
    return FeatureTransform() if hold_features(images) else transform


def _rows_for_test(file: FeatureFile, labels: Tensor) -> tuple[Tensor, int]:
    """[N] bool, and how many the rule chose."""
    if file.split is not None:
        return file.split, 0
    for_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().flatten().tolist()
        keys = [(str(row) if file.names is None else file.names[row]).encode() for row in rows]
        for_test[[rows[place] for place in chosen_for_test(keys)]] = True
    return for_test, int(for_test.sum())
