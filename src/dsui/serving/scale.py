"""Scores on the scale of the calibration images: which share of the held-out images has a smaller one.

A score means nothing by itself; "more uncertain than 98 % of the held-out images" does. The file of a model holds the
quantiles of its scores at 0, 1, ..., 100 %, and between them the scale is linear.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

TOP = 100.0


class Scale:
    """`quantiles` [101] of each score by name, ascending."""

    def __init__(self, quantiles: Mapping[str, ArrayLike]) -> None:
        self._quantiles = {name: np.asarray(values, dtype=np.float64) for name, values in quantiles.items()}
        self._lists: dict[str, list[float]] = {name: values.tolist() for name, values in self._quantiles.items()}
        self._percents = {name: np.linspace(0.0, TOP, len(values)) for name, values in self._quantiles.items()}

    @property
    def scores(self) -> tuple[str, ...]:
        return tuple(self._quantiles)

    def percentiles(self, score: str, values: ArrayLike) -> NDArray[np.float64] | None:
        """[N] from 0 to 100; None for a score that was not calibrated. NaN, which thresholds reject, is at the top."""
        if (known := self._quantiles.get(score)) is None:
            return None
        numbers = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=np.inf)
        return np.interp(numbers, known, self._percents[score])

    def percentile(self, score: str, value: float) -> float | None:
        """The same of one value, many times as fast."""
        if (known := self._lists.get(score)) is None:
            return None
        above = len(known) if math.isnan(value) else bisect_right(known, value)
        if not 0 < above < len(known):
            return TOP if above else 0.0
        low, high = known[above - 1], known[above]
        return TOP * (above - 1 + (value - low) / (high - low)) / (len(known) - 1)
