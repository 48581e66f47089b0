"""The 1,797 handwritten digits of 8x8 pixels that scikit-learn carries (UCI optical recognition, test part).

There are two data sets, whose splits are always the same. "digits" has 100 random digits of every class for training
and the other 797 for test. "digits-256" trains on 256 of those 1,000 and tests on the other 1,541: with so few training
images there are errors to find.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, Split

SIDE = 8
LARGEST_PIXEL = 16
ALL_IMAGES, TRAIN_IMAGES, FEW_IMAGES = 1797, 1000, 256
SPLIT_SEED = 0


def digits() -> tuple[Tensor, Tensor]:
    """Images [1797, 1, 8, 8] in [0, 1] and labels [1797]."""
    from sklearn.datasets import load_digits  # slow to load

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, SIDE, SIDE) / LARGEST_PIXEL
    return images, torch.from_numpy(labels).long()


def split(labels: Tensor, train: int, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of `train` random training images, every class equally often up to one, and of all the others."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    rank_in_class = torch.empty_like(labels)
    for label in set(labels.tolist()):
        members = order[labels[order] == label]
        rank_in_class[members] = torch.arange(len(members))
    order = order[torch.argsort(rank_in_class[order], stable=True)]
    return order[:train], order[train:]


def digit_set(part: str, train_images: int = TRAIN_IMAGES, name: str = "digits") -> MemorySet:
    """The split "train" or "test" as 8-bit images [N, 1, 8, 8], the 17 grey levels spread over 0..255."""
    images, labels = digits()
    train, test = split(labels, train_images, SPLIT_SEED)
    chosen = (train if part == "train" else test).sort().values
    pixels = (images[chosen] * 255).round().to(torch.uint8)
    return MemorySet(name, tuple("0123456789"), pixels, labels[chosen])


DIGITS = DatasetInfo(
    name="digits",
    load=lambda _, part: digit_set(part),
    classes=10,
    shape=(1, SIDE, SIDE),
    splits={"train": Split(TRAIN_IMAGES, (0.3047,)), "test": Split(ALL_IMAGES - TRAIN_IMAGES, (0.3061,))},  # measured
    page="https://archive.ics.uci.edu/dataset/80",
    licence="CC BY 4.0",
)

DIGITS_256 = replace(
    DIGITS,
    name="digits-256",
    load=lambda _, part: digit_set(part, FEW_IMAGES, "digits-256"),
    splits={"train": Split(FEW_IMAGES, (0.3048,)), "test": Split(ALL_IMAGES - FEW_IMAGES, (0.3054,))},  # measured
)
