"""Two-parameter Weibull distributions of several tails at once, by maximum likelihood, and what OpenMax does with them.

    F(x) = 1 - exp(-(x / l)^k),   k solves  sum x^k ln x / sum x^k - 1/k = mean ln x,   l^k = mean x^k

The left side of the equation rises with k, so halving an interval finds its one root. OpenMax is a detector and a part
of G-OpenMax, which is a method; so its formulas are here, below both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

SHAPES = 1e-3, 1e8
"""The limits of k; a tail of equal values ends at the upper one, where F is a step."""
HALVINGS = 100
ALWAYS_BY_PRODUCT = "use_mm_for_euclid_dist"


class Weibull(NamedTuple):
    """k and l, [C] each."""

    shape: Tensor
    scale: Tensor

    def cdf(self, x: Tensor) -> Tensor:
        """F [N, C] of x [N, C]; 0 where x is not positive."""
        return -torch.expm1(-(self.shape * (x.clamp(min=0) / self.scale).log()).exp())


def fit_weibull(x: Tensor, mask: Tensor) -> Weibull:
    """One distribution for each row of x [C, T], fitted to its marked values, which are positive."""
    log_x = torch.where(mask, x, 1.0).log()
    count = mask.double().sum(1)
    mean = (log_x * mask).sum(1) / count
    low, high = (torch.full_like(mean, math.log(end)) for end in SHAPES)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        shape = middle.exp()
        share = (shape[:, None] * log_x).masked_fill(~mask, -torch.inf).softmax(1)
        below = (share * log_x).sum(1) - 1 / shape < mean
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    shape = high.exp()
    power = (shape[:, None] * log_x).masked_fill(~mask, -torch.inf)
    return Weibull(shape, ((power.logsumexp(1) - count.log()) / shape).exp())


class UnusualDistances(NamedTuple):
    """What OpenMax knows of each class: its mean, and how far from it the farthest of its samples lie.

    d_c = |y - m_c|,   P(d_c is unusual) = F_c(d_c - s_c + 1),  fitted to the tail of class c, s_c the least of it
    """

    means: Tensor
    """[C, D]"""
    least: Tensor
    """[C]"""
    weibull: Weibull

    def probability(self, values: Tensor) -> Tensor:
        """[N, C] of values [N, D]"""
        distances = torch.cdist(values, self.means, compute_mode=ALWAYS_BY_PRODUCT)
        return self.weibull.cdf(distances - self.least + 1)


def fit_unusual_distances(
    distances: Tensor, labels: Tensor, means: Tensor, tail: int, share: float = 1.0
) -> UnusualDistances:
    """From the distances [N] of samples to the means of their own classes. The largest `tail` of a class count, but no
    more than that share of it, or two. Every class needs a sample."""
    counts = torch.bincount(labels, minlength=len(means)).tolist()
    by_class = distances[labels.argsort(stable=True)].split(counts)
    sizes = [min(tail, max(2, int(share * len(each))), len(each)) for each in by_class]
    tails = [each.topk(size).values for each, size in zip(by_class, sizes, strict=True)]
    padded = torch.nn.utils.rnn.pad_sequence(tails, batch_first=True, padding_value=-1.0)
    least = torch.stack([each[-1] for each in tails])
    return UnusualDistances(means, least, fit_weibull(padded - least[:, None] + 1, padded >= 0))


def discounted(v: Tensor, unusual: Tensor, alpha: int) -> tuple[Tensor, Tensor]:
    """OpenMax's discount of v [N, C] by the probabilities that they are unusual: what is left of v [N, C], and what was
    taken away [N]. The i-th largest loses the share unusual (alpha + 1 - i) / alpha, i <= alpha."""
    largest, where = v.topk(alpha)
    ranks = torch.arange(alpha, 0, -1, dtype=v.dtype, device=v.device) / alpha
    removed = largest * unusual.gather(1, where) * ranks
    return v.scatter_add(1, where, -removed), removed.sum(1)
