"""Whether accepted images are more often wrong than promised, from labels that come later.

The null hypothesis: whatever came before, the next accepted image is wrong with a chance of at most r. For q > r

    q / r  for a wrong image,  (1 - q) / (1 - r)  for a right one

is a factor with at most the mean 1. Wealth is spread over q and over the image from which on the risk may have risen,
as in `dsui.monitoring.urn`. With a chance of at least 1 - a it never reaches 1 / a (Ville, 1939; Waudby-Smith and
Ramdas, 2024).

The interval holds the chance p of an error, if it stays the same, at every number of images t at once with a chance of
at least 1 - a (Robbins, 1970). With s errors it is where the mixture of all chances is not too much better than p:

    B(s + 1/2, t - s + 1/2) / B(1/2, 1/2) < p^s (1 - p)^(t - s) / a
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dsui.monitoring.alarm import Alarm, facts
from dsui.monitoring.urn import SHIFTS, log_rest, log_start

HALVINGS = 50
"""Of the interval from 0 to 1, for a bound of the chance of an error: as exact as float64 needs."""


class RiskMonitor(Alarm):
    """Watches the share of errors among accepted images, of which at most `promised` should be wrong."""

    kind = "risk"

    def __init__(self, promised: float, *, false_alarm: float = 0.01) -> None:
        super().__init__(false_alarm)
        if not 0 < promised < 1:
            raise ValueError(f"the promised risk must be between 0 and 1, as in 0.02, got {promised}.")
        self.promised, self.errors = promised, 0
        odds = math.log(promised / (1 - promised)) + SHIFTS
        self._if_wrong = -np.logaddexp(0, -odds) - math.log(promised)
        self._if_right = -np.logaddexp(0, odds) - math.log1p(-promised)
        self._log_bets = np.full(len(SHIFTS), -np.inf)

    def update(self, wrong: bool | Sequence[bool] | NDArray[np.bool_]) -> bool:
        """Take one accepted image or several, whether each was predicted wrongly; whether there is an alarm."""
        for each in np.atleast_1d(np.asarray(wrong, dtype=bool)):
            step = self.observations
            self._log_bets = np.logaddexp(self._log_bets, log_start(step))
            self._log_bets += self._if_wrong if each else self._if_right
            self.errors += int(each)
            bets = float(np.logaddexp.reduce(self._log_bets)) - math.log(len(SHIFTS))
            self.note(float(np.logaddexp(bets, log_rest(step))))
        return self.alarm

    @property
    def rate(self) -> float | None:
        """The share of errors so far."""
        return self.errors / self.observations if self.observations else None

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Bounds of the chance of an error; over the whole stream they miss it with a chance of at most 1 - `level`."""
        errors, right = self.errors, self.observations - self.errors
        mixture = _log_beta(errors + 0.5, right + 0.5) - _log_beta(0.5, 0.5) + math.log(1 - level)

        def inside(p: float) -> bool:
            possible = (p > 0 or errors == 0) and (p < 1 or right == 0)
            return possible and mixture < (errors * math.log(p) if errors else 0.0) + (
                right * math.log1p(-p) if right else 0.0
            )

        rate = self.rate
        if rate is None:
            return 0.0, 1.0
        return _edge(inside, rate, 0.0), _edge(inside, rate, 1.0)

    @property
    def sentence(self) -> str:
        """For people."""
        if self.rate is None:
            return "No accepted image has a label yet."
        low, high = self.interval()
        images = f"{self.observations:,} accepted image{'s' * (self.observations != 1)} with a label"
        seen = (
            f"{self.rate:.1%} of {images} wrong (95 % interval {low:.1%} to {high:.1%}), {self.promised:.1%} promised"
        )
        if self.since is None:
            return f"No alarm: {seen}."
        alarm = f"Alarm at accepted image {self.since:,}: {seen}"
        return f"{alarm}; a false alarm has a chance of at most {self.false_alarm:g}."

    def to_mapping(self) -> dict[str, object]:
        """For JSON and metrics."""
        low, high = self.interval()
        return {
            "kind": self.kind,
            "promised": self.promised,
            "errors": self.errors,
            "rate": self.rate,
            "low": low,
            "high": high,
            **facts(self),
            "sentence": self.sentence,
        }


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _edge(inside: Callable[[float], bool], within: float, outer: float) -> float:
    """The end of the interval between `within`, which lies in it, and `outer`."""
    if inside(outer):
        return outer
    for _ in range(HALVINGS):
        middle = (within + outer) / 2
        within, outer = (middle, outer) if inside(middle) else (within, middle)
    return outer
