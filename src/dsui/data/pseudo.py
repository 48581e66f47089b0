"""Foreign images made from a data set's own, to select a method by without looking at any foreign test set.

    blends     (x + y) / 2 of two images of different classes
    patches    an image cut into 4 x 4 patches in another order
    gaussian   every pixel independent, N(1/2, 1/4), clipped to [0, 1]

One for every image, the same for the same seed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.data.dataset import ImageSet, MemorySet
from dsui.data.pipeline import plain_batches
from dsui.data.registry import PSEUDO
from dsui.errors import DataError

GRID = 4
DEVIATION = 0.25
BLOCK = 4096


def blends(images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """[N, C, H, W]; the partner is drawn among the images of all other classes."""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels)
    starts = counts.cumsum(0) - counts
    # The places after an image's own class, counted in a circle round the sorted images, are those of the others.
    others = len(labels) - counts[labels]
    if bool((others == 0).any()):
        raise DataError("blends need images of two classes or more.")
    steps = (torch.rand(len(labels), generator=generator) * others).long()
    partner = order[(starts[labels] + counts[labels] + steps) % len(labels)]
    return ((images.int() + images[partner].int()) / 2).round().to(torch.uint8)


def patches(images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """[N, C, H, W]; no image keeps its order."""
    del labels
    count, channels, height, width = images.shape
    if height % GRID or width % GRID:
        raise DataError(f"images of {height} x {width} pixels cannot be cut into {GRID} x {GRID} equal patches.")
    cut = images.view(count, channels, GRID, height // GRID, GRID, width // GRID).permute(0, 2, 4, 1, 3, 5)
    cut = cut.reshape(count, GRID**2, channels, height // GRID, width // GRID)
    order = torch.rand(count, GRID**2, generator=generator).argsort(1)
    same = (order == torch.arange(GRID**2)).all(1)
    order[same] = order[same].roll(1, 1)
    mixed = cut[torch.arange(count)[:, None], order]
    mixed = mixed.view(count, GRID, GRID, channels, height // GRID, width // GRID).permute(0, 3, 1, 4, 2, 5)
    return mixed.reshape(images.shape)


def gaussian(images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """[N, C, H, W]"""
    del labels
    noise = 0.5 + DEVIATION * torch.randn(images.shape, generator=generator)
    return (noise.clamp(0, 1) * 255).round().to(torch.uint8)


def pseudo_outliers(kind: str, images: ImageSet, seed: int = 0) -> MemorySet:
    """One foreign image for every one of `images`, as a data set of one class, in memory; `kind` is in `PSEUDO`."""
    pixels = torch.cat([images.read(block) for block in plain_batches(len(images.labels), BLOCK)])
    pseudo = PSEUDO[kind](pixels, images.labels, torch.Generator().manual_seed(seed))
    return MemorySet(kind, (kind,), pseudo, torch.zeros(len(pseudo), dtype=torch.int64))
