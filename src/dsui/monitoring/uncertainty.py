"""Whether uncertainties are still spread as those of the calibration images, from the scores alone.

The null hypothesis: the new scores and those of the n calibration images are exchangeable. Bets are on how many new
ones lie below the calibration values of several ranks, from the smallest to the largest (`dsui.monitoring.urn`). One
wealth is spread over all of them. Both tails count: foreign images usually have larger scores, and a network that is
sure of everything makes them smaller.

Equal scores are put in order by chance, with a generator of a fixed seed, so that the test stays exact and repeatable.
Quantiles alone must be values of images (`order_statistics`), not means of two. They give the same bets, and the test
is then exact as long as no scores are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsui.monitoring.alarm import Alarm, count, facts
from dsui.monitoring.urn import UrnMartingale

PERCENTS = (1, 2, 5, 10, 25, 50, 75, 90, 95, 98, 99, 100)
"""Of the calibration images: the ranks that are bet on."""
QUANTILES = 101
LEAST = 10
"""Calibration images: of fewer hardly any change could be told from chance."""
Values = Sequence[float] | NDArray[np.floating]


class UncertaintyMonitor(Alarm):
    """Watches scores, given those [n] of the calibration images, in any order; NaN counts as larger than all."""

    kind = "uncertainty"

    def __init__(self, calibration: Values, *, false_alarm: float = 0.01, score: str = "uncertainty") -> None:
        values = np.sort(np.asarray(calibration, dtype=np.float64).ravel())
        self._start(values, np.arange(1, len(values) + 1), len(values), false_alarm, score)

    @classmethod
    def of_quantiles(
        cls, quantiles: Values, images: int, *, false_alarm: float = 0.01, score: str = "uncertainty"
    ) -> UncertaintyMonitor:
        """From the 0, 1, ..., 100 % quantiles of `images` scores, each one of the scores: q % is that of rank
        ceil(images q / 100), and 0 % the smallest."""
        values = np.asarray(quantiles, dtype=np.float64).ravel()
        if len(values) != QUANTILES or (np.diff(values) < 0).any():
            raise ValueError("the quantiles of the calibration scores must be 101 numbers in ascending order.")
        monitor = cls.__new__(cls)
        monitor._start(values, _ranks(images), images, false_alarm, score)
        return monitor

    def _start(
        self, values: NDArray[np.float64], ranks: NDArray[np.int64], images: int, false_alarm: float, score: str
    ) -> None:
        super().__init__(false_alarm)
        if images < LEAST or not np.isfinite(values).all():
            raise ValueError(f"a monitor needs the finite scores of at least {LEAST} calibration images.")
        self.images, self.score = images, score
        self._generator = np.random.default_rng(0)
        labels = np.empty(len(values))  # the order of equal scores
        for start, stop in _runs(values):
            labels[start:stop] = np.sort(self._generator.random(stop - start))
        places = np.unique(np.searchsorted(ranks, _ranks(images)[list(PERCENTS)]))
        self._limits, self._labels = values[places], labels[places]
        self._urn = UrnMartingale(ranks[places].tolist(), images)

    def update(self, values: float | Values) -> bool:
        """Take one score or several, in the order of the stream; whether there is an alarm."""
        found = np.atleast_1d(np.asarray(values, dtype=np.float64))
        for value in np.where(np.isnan(found), np.inf, found):
            below = value < self._limits
            if (equal := value == self._limits).any():
                below |= equal & (self._generator.random() < self._labels)
            self.note(float(self._urn.update(below)))
        return self.alarm

    @property
    def sentence(self) -> str:
        """For people."""
        if self.observations == 0:
            return "No image has been scored yet."
        what = f"{self.score} of {count(self.observations)}"
        if self.since is None:
            return f"No alarm: {what} is spread as calibration allows."
        return (
            f"Alarm at image {self.since:,}: {what} is not spread as that of the {self.images:,} calibration images; "
            f"images like those would give an alarm with a chance of at most {self.false_alarm:g}."
        )

    def to_mapping(self) -> dict[str, object]:
        """For JSON and metrics."""
        return {
            "kind": self.kind,
            "score": self.score,
            "images": self.images,
            **facts(self),
            "sentence": self.sentence,
        }


def order_statistics(scores: Values) -> list[float]:
    """The 101 quantiles that `UncertaintyMonitor.of_quantiles` reads, from all calibration scores."""
    ordered = np.sort(np.asarray(scores, dtype=np.float64).ravel())
    found: list[float] = ordered[_ranks(len(ordered)) - 1].tolist()
    return found


def _ranks(images: int) -> NDArray[np.int64]:
    """Of the quantiles; whole numbers, because 300 x 0.07 is 21.000000000000004."""
    return np.array([max(1, -(-images * percent // 100)) for percent in range(QUANTILES)])


def _runs(ordered: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Begin and end of each stretch of equal values."""
    edges = np.flatnonzero(np.diff(ordered)) + 1
    return list(zip([0, *edges.tolist()], [*edges.tolist(), len(ordered)], strict=True))
