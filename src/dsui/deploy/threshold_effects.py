"""The effect of thresholds on images that were not used to choose them: test images, foreign ones, noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsui.deploy.scorer import Chooser, ScoredSet
from dsui.errors import DsuiError
from dsui.limits import Criterion
from dsui.runs.acceptance import Thresholds

OWN = "test"
"""The name of the set whose images are of the model's classes."""


class SetEffect(NamedTuple):
    """What is accepted of the images of one set."""

    name: str
    images: int
    accepted: float | None
    """The share of the images that is accepted; None where there are no thresholds."""
    wrong: float | None
    """The share of the accepted images that is predicted wrongly; None for foreign images, and where none is
    accepted."""


class Effect(NamedTuple):
    """What a criterion means. `thresholds` is None where it cannot be met, which the obstacle says, and for the
    criterion that accepts everything."""

    criterion: Criterion
    thresholds: Thresholds | None
    obstacle: str | None
    sets: tuple[SetEffect, ...]

    def record(self, saved: Thresholds | None) -> dict[str, object]:
        """For a program to read; docs/thresholds.md lists the fields. `saved` are the thresholds that the run keeps."""
        coverage, risk = self.criterion
        chosen = self.thresholds
        return {
            "accepting_by": self.criterion.name.split()[0] if self.criterion != Criterion() else None,
            "asked": risk if coverage is None else coverage,
            "thresholds": [
                {"score": limit.score, "up_to": limit.value, "finds": limit.finds}
                for limit in (chosen.limits if chosen else ())
            ],
            "calibration": None
            if chosen is None
            else {"images": chosen.images, "accepted": chosen.coverage, "wrong": chosen.risk},
            "sets": [each._asdict() for each in self.sets],
            "saved": chosen is not None and chosen == saved,
            "obstacle": self.obstacle,
        }


def effect(criterion: Criterion, chooser: Chooser, sets: Mapping[str, ScoredSet]) -> Effect:
    """The thresholds that the calibration images give, and what they accept of other images, by name."""
    if criterion == Criterion():
        return Effect(criterion, None, None, tuple(_everything(name, images) for name, images in sets.items()))
    try:
        chosen = chooser.choose(criterion)
    except DsuiError as error:
        unknown = (SetEffect(name, len(images.errors), None, None) for name, images in sets.items())
        return Effect(criterion, None, str(error), tuple(unknown))
    return Effect(criterion, chosen, None, tuple(set_effect(name, images, chosen) for name, images in sets.items()))


def set_effect(name: str, images: ScoredSet, thresholds: Thresholds) -> SetEffect:
    """What thresholds accept of a set."""
    kept = thresholds.accepted(images.scores)
    wrong = images.errors[kept].double().mean().item() if name == OWN and bool(kept.any()) else None
    return SetEffect(name, len(kept), kept.double().mean().item(), wrong)


def _everything(name: str, images: ScoredSet) -> SetEffect:
    return SetEffect(name, len(images.errors), 1.0, images.errors.double().mean().item() if name == OWN else None)
