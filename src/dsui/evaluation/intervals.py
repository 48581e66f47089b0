"""What a figure of so many images can show: 95 % intervals that hold for few images, and at 0 and 1.

* A share k / n: the interval of Wilson (1927), the p with |k/n - p| <= z sqrt(p (1 - p) / n).
* An AUROC A of m positives and n negatives: method 5 of Newcombe (Statistics in Medicine, 2006), the A' with
  |A - A'| <= z sqrt(V(A')),  V(A') = A' (1 - A') / (m n) (1 + N (1 - A') / (2 - A') + N A' / (1 + A')),
  N = (m + n) / 2 - 1. V is the variance of Hanley and McNeil (1982) for exponential scores.
* A calibration error is at least 0, so chance alone raises it (`chance_ece`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dsui.evaluation.reliability import BINS
from dsui.evaluation.statistics import Interval

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
HALVINGS = 60


def share_interval(share: float, images: int) -> Interval:
    """Of a share of so many images; all of [0, 1] without any."""
    if images == 0:
        return Interval(0.0, 1.0)
    centre = (share + Z**2 / (2 * images)) / (1 + Z**2 / images)
    half = Z / (1 + Z**2 / images) * math.sqrt(share * (1 - share) / images + Z**2 / (4 * images**2))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Interval(min(low, share), max(high, share))  # rounding leaves a little between none and 0


def auroc_interval(auroc: float, positives: int, negatives: int) -> Interval:
    """Of an AUROC of so many positives and negatives; all of [0, 1] without either."""
    if positives == 0 or negatives == 0:
        return Interval(0.0, 1.0)
    half_sum = (positives + negatives) / 2 - 1

    def within(other: float) -> bool:
        spread = 1 + half_sum * (1 - other) / (2 - other) + half_sum * other / (1 + other)
        return abs(auroc - other) <= Z * math.sqrt(other * (1 - other) / (positives * negatives) * spread)

    return Interval(_edge(within, auroc, 0.0), _edge(within, auroc, 1.0))


def chance_ece(accuracy: float, images: int) -> float:
    """The most that the ECE of perfectly calibrated probabilities is on average.

    In a bin of n_b images and accuracy a_b, |accuracy - confidence| is about sqrt(2 a_b (1 - a_b) / (pi n_b)); by
    Cauchy's inequality their weighted sum is at most sqrt(2 BINS a (1 - a) / (pi n)).
    """
    return math.sqrt(2 * BINS * accuracy * (1 - accuracy) / (math.pi * images)) if images else 1.0


def _edge(within: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where the interval ends between a point in it and an end of the range."""
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if within(middle) else (inside, middle)
    return inside
