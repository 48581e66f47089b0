"""Two-parameter Weibull distributions of several tails at once, by maximum likelihood.

    F(x) = 1 - exp(-(x / l)^k),   k solves  sum x^k ln x / sum x^k - 1/k = mean ln x,   l^k = mean x^k

The left side of the equation rises with k, so halving an interval finds its one root.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

SHAPES = 1e-3, 1e8
"""The limits of k; a tail of equal values ends at the upper one, where F is a step."""
HALVINGS = 100


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
