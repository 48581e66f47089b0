"""Which scores thresholds are set on: one, or one that finds errors and one that finds foreign images.

nothing                    uncertainty
score                      that score
detector                   the detector's own score
two                        uncertainty, and beside it foreignness, or the detector's own score where there is one
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dsui.detectors import registry
from dsui.errors import DsuiError
from dsui.limits import Finds
from dsui.score_table import NAMES, TABLE, detector_scores
from dsui.spelling import unknown_name

QUESTIONS = {score.name: score.question for score in TABLE}
NOT_DEPLOYED = "odin"
"""The detector that needs a backward pass for each image, which prediction does not make."""


class ScoreChoice(NamedTuple):
    """Names as users give them; `foreign_score` means `two`."""

    score: str | None = None
    foreign_score: str | None = None
    two: bool = False
    detector: str | None = None

    def finds(self) -> dict[str, Finds]:
        """The scores by name, in the order in which they are told, with what each is to find."""
        of_detector = detector_scores(self.detector) if self.detector else ()
        if self.two or self.foreign_score is not None:
            first = self.score or "uncertainty"
            second = self.foreign_score or (of_detector[0] if of_detector else "foreignness")
            if first == second:
                raise DsuiError(f"both thresholds are of {first}; choose two scores, or one threshold.")
            return {first: "errors", second: "foreign images"}
        score = self.score or (of_detector[0] if of_detector else "uncertainty")
        foreign = QUESTIONS.get(score) == "foreign" or score in of_detector[:1]
        return {score: "foreign images" if foreign else "errors"}

    def check(self) -> None:
        """Raise for a detector that does not exist, cannot be used here, or gives none of the scores."""
        if self.detector is None:
            return
        registry.build(self.detector)
        if self.detector == NOT_DEPLOYED:
            raise DsuiError(
                f"{NOT_DEPLOYED} changes each image by a backward pass, which predictions do not make; choose another "
                "detector."
            )
        of_detector = detector_scores(self.detector)
        if not set(of_detector) & set(self.finds()):
            raise DsuiError(
                f"the detector {self.detector} gives the scores {' and '.join(of_detector)}, and none of them is "
                "chosen; choose one, or leave the detector out."
            )

    def check_available(self, available: Collection[str], method: str) -> None:
        """Raise for a score that a method, with the chosen detector, does not have."""
        for name in self.finds():
            if name not in available:
                raise DsuiError(_unavailable(name, available, method))


def _unavailable(name: str, available: Collection[str], method: str) -> str:
    for detector in registry.names():
        if name in detector_scores(detector):
            return f"{name} is a score of the detector {detector}; add --detector {detector}."
    if name in NAMES:
        return f"{method} does not have the score {name}; choose another, for instance {', '.join(available)}."
    return unknown_name("score", name, available)
