"""The generalised Pareto distribution of a tail, and the threshold between two distributions that it gives.

    P(x - u > e | x > u) = (1 - k e / s)^(1 / k),   for k = 0 exp(-e / s)

by probability-weighted moments (Hosking and Wallis, Technometrics 1987), with x_(i) the ascending excesses over u:

    a_0 = mean x,   a_1 = mean (1 - p_i) x_(i),   p_i = (i - 0.35) / n
    k = a_0 / (a_0 - 2 a_1) - 2,   s = 2 a_0 a_1 / (a_0 - 2 a_1)

Below u a probability is the share of the sample.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TAIL_SHARE = 0.1
"""The share of a sample that is its tail."""
CANDIDATES = 1001


class UpperTail(NamedTuple):
    """A sample, ascending, and the tail above its quantile of 1 - `TAIL_SHARE`."""

    sample: Tensor
    """[N]"""
    start: Tensor
    """u, a scalar as the two below."""
    k: Tensor
    s: Tensor

    def above(self, x: Tensor) -> Tensor:
        """P(X > x) [M] for x [M]."""
        in_sample = 1 - torch.searchsorted(self.sample, x, right=True) / len(self.sample)
        excess = (x - self.start).clamp(min=0) / self.s
        left = (1 - self.k * excess).clamp(min=0)
        share = torch.where(self.k.abs() < 1e-6, (-excess).exp(), left ** (1 / self.k))
        beyond = (self.sample > self.start).double().mean() * share
        return torch.where(x < self.start, in_sample, beyond)


def fit_upper_tail(x: Tensor) -> UpperTail:
    """The tail of a sample [N] in float64, of at least two different values."""
    sample = x.sort().values
    start = sample[len(sample) - 1 - max(2, int(TAIL_SHARE * len(sample)))]
    excesses = sample[sample > start] - start
    p = (torch.arange(1, len(excesses) + 1, dtype=x.dtype, device=x.device) - 0.35) / len(excesses)
    a_0, a_1 = excesses.mean(), ((1 - p) * excesses).mean()
    return UpperTail(sample, start, a_0 / (a_0 - 2 * a_1) - 2, 2 * a_0 * a_1 / (a_0 - 2 * a_1))


def threshold_between(lower: Tensor, upper: Tensor) -> Tensor:
    """The t at which P(lower > t) + P(upper < t) is least, by the upper tail of `lower` [N] and the lower tail of
    `upper` [M]; to a thousandth of the range of both."""
    high, low = fit_upper_tail(lower), fit_upper_tail(-upper)
    both = torch.cat([lower, upper])
    grid = torch.linspace(0, 1, CANDIDATES, dtype=both.dtype, device=both.device)
    t = both.min() + (both.max() - both.min()) * grid
    return t[(high.above(t) + low.above(-t)).argmin()]
