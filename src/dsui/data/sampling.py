"""How often an epoch meets each image, where images do not all count alike.

An image of weight w is met w times in an epoch: exactly, where w is whole, otherwise floor(w) or floor(w) + 1 times and
w times on the mean. With S_i = w_1 + ... + w_i and u drawn uniformly from [0, 1), it is met

    floor(u + S_i) - floor(u + S_{i-1})

times (systematic sampling; Madow, 1949). Images of one class stand together in that sum, in a new order for every draw,
so that a class of total weight W is met floor(W) or floor(W) + 1 times. To sample classes evenly (`balanced`) is to
weigh them so.

A place i + c N in an epoch's order means image i of N, met for the c-th time after the first: loaders read image i,
and augmentation, which goes by the place, treats the copies as different images.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

UNIT = 1 << 20
"""Weights are counted in parts of this, so that their sum has no rounding."""
MOST_DRAWN = 1 << 40
"""Places of an epoch; far more than any machine has."""


def check_weights(weights: Tensor, images: int) -> None:
    """Raise unless there is one finite weight of at least 0 for each image, and their sum is not 0."""
    if weights.shape != (images,):
        raise ValueError(f"sample_weight has the shape {list(weights.shape)}; give one number for each image.")
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("sample_weight holds a number that is negative or not finite; give weights of 0 or more.")
    if not 0 < float(weights.sum()) < MOST_DRAWN:
        raise ValueError("sample_weight must not be 0 for all images, nor so large that an epoch has no end.")


def balanced(labels: Tensor, classes: int, weights: Tensor) -> Tensor:
    """[N] weights of the same sum, of which every class has an equal part; images share it as `weights` say."""
    totals = torch.bincount(labels, weights, minlength=classes)
    share = torch.where(totals > 0, weights.sum() / (int((totals > 0).sum()) * totals), 0)
    return weights * share[labels]


def epoch_length(weights: Tensor) -> int:
    """How many images an epoch meets: the sum of the weights without its fraction."""
    return math.floor(float(weights.sum()) + 1e-6)


def drawn_places(weights: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """[epoch_length] places of one epoch, ascending by image, not shuffled yet."""
    count, length = len(weights), epoch_length(weights)
    order = torch.randperm(count, generator=generator)
    order = order[labels[order].argsort(stable=True)]
    sums = (weights.double()[order].cumsum(0) * (length / float(weights.sum())) * UNIT).round().long()
    sums[-1] = length * UNIT
    offset = int(torch.randint(UNIT, (1,), generator=generator))
    met = torch.empty(count, dtype=torch.int64)
    met[order] = ((sums + offset) // UNIT).diff(prepend=torch.zeros(1, dtype=torch.int64))
    images = torch.arange(count).repeat_interleave(met)
    first = (met.cumsum(0) - met).repeat_interleave(met)
    return images + (torch.arange(length) - first) * count
