"""Whether images are still accepted as often as calibration promised, from accept and reject alone.

The null hypothesis: the new images and the n calibration images are exchangeable, so the number of accepted ones
follows Polya's urn from the threshold's rank k (`dsui.monitoring.urn`). On average over the calibration images they are
accepted with a chance of k / (n + 1), which lies in [c, c + 1 / (n + 1)) for the coverage c. It is not that the rate is
exactly c: given the calibration images the true rate varies by about sqrt(c (1 - c) / n), so a test of "the rate is c"
raises a false alarm on almost every stream that is long enough. Scores must not be equal to the threshold's.

A rank that was chosen by the labels of the calibration images, as by `--risk`, was one of several. Each of them has its
urn, so the chance of a false alarm is kept if the wealth must reach choices / a in place of 1 / a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dsui.monitoring.alarm import Alarm, count, facts
from dsui.monitoring.urn import UrnMartingale


class AcceptanceMonitor(Alarm):
    """Watches a threshold that n = `images` calibration images gave for the coverage `promised`.

    With `images=None` the rate `promised` is taken as exactly known.
    """

    kind = "acceptance"

    def __init__(self, promised: float, images: int | None, *, false_alarm: float = 0.01) -> None:
        if not 0 < promised < 1:
            raise ValueError(f"the promised rate must be between 0 and 1, as in 0.95, got {promised}.")
        share = Fraction(str(promised))  # as dsui.runs.threshold takes it
        rank = None if images is None else math.ceil((images + 1) * share)
        self._start(promised, rank, images, 1, false_alarm)

    @classmethod
    def at_rank(cls, rank: int, images: int, *, choices: int = 1, false_alarm: float = 0.01) -> AcceptanceMonitor:
        """Of a threshold that stands at this rank among the calibration images; it was chosen among `choices` ranks by
        what the calibration images' labels are, and 1 means that it was not."""
        monitor = cls.__new__(cls)
        monitor._start(rank / (images + 1), rank, images, choices, false_alarm)
        return monitor

    def _start(self, promised: float, rank: int | None, images: int | None, choices: int, false_alarm: float) -> None:
        super().__init__(false_alarm)
        if choices < 1:
            raise ValueError(f"a threshold is chosen among one rank or more, got {choices}.")
        self.promised, self.images, self.choices = promised, images, choices
        self.accepted = 0
        urn = UrnMartingale(rates=[promised]) if rank is None else UrnMartingale([rank], images)
        self._urn, self._penalty = urn, math.log(choices)

    def update(self, accepted: bool | Sequence[bool] | NDArray[np.bool_]) -> bool:
        """Take one decision or several, in the order of the stream; whether there is an alarm."""
        for each in np.atleast_1d(np.asarray(accepted, dtype=bool)):
            self.accepted += int(each)
            self.note(float(self._urn.update(np.array([each]))) - self._penalty)
        return self.alarm

    @property
    def rate(self) -> float | None:
        """The share accepted so far."""
        return self.accepted / self.observations if self.observations else None

    @property
    def sentence(self) -> str:
        """For people."""
        if self.rate is None:
            return "No image has been decided on yet."
        seen = f"{self.rate:.1%} of {count(self.observations)} accepted, {self.promised:.1%} promised"
        if self.since is None:
            return f"No alarm: {seen}; that is within what calibration allows."
        return (
            f"Alarm at image {self.since:,}: {seen}; images like those of the calibration would give an alarm with a "
            f"chance of at most {self.false_alarm:g}."
        )

    def to_mapping(self) -> dict[str, object]:
        """For JSON and metrics."""
        return {
            "kind": self.kind,
            "promised": self.promised,
            "images": self.images,
            "accepted": self.accepted,
            "rate": self.rate,
            **facts(self),
            "sentence": self.sentence,
        }
