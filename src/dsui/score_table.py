"""The table of scores: each one's name, the question it answers, what readers see, and where it is shown.

Everything that lists scores reads this table: results rows, the tables and figures of reports, `dsui evaluate` and the
completion of its options. It imports nothing, because completion must not wait for PyTorch; the functions are in
`dsui.scores`, under the same names.

A secondary score S asks whether an image is foreign. SIRC joins it with Max.P., as the score `sirc_S`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

SIRC = "sirc_"
"""How the name of a score begins that is joined with Max.P."""

Question = Literal["wrong", "foreign", "both"]
"""Is the prediction wrong, is the image foreign, or either."""


class Score(NamedTuple):
    """One uncertainty of an image."""

    name: str
    """In results rows and options."""
    question: Question
    label: str | None = None
    """What readers of tables and figures see instead of the name."""
    variant: bool = False
    """Whether it is a variant of another score, which a list of the usual ones leaves out."""
    drawn: bool = False
    """Whether the figures of a report show it."""
    secondary: bool = False
    """Whether SIRC can join it with Max.P."""


_FORMULAS = (
    Score("max_probability", "wrong", "Max.P.", drawn=True),
    Score("entropy", "wrong", "Ent.", drawn=True),
    Score("max_logit", "foreign", variant=True),
    Score("sphere_max_probability", "wrong", variant=True),
    Score("density_max_probability", "wrong", "density Max.P."),
    Score("density_entropy", "wrong", "density Ent.", variant=True),
    Score("floored_posterior", "both", variant=True),
    Score("mutual_information", "both", drawn=True),
    Score("energy", "foreign", drawn=True, secondary=True),
    Score("density_energy", "foreign", variant=True, secondary=True),
    Score("log_density", "foreign", "log-density", drawn=True, secondary=True),
    Score("sphere_energy", "foreign", variant=True, secondary=True),
    Score("norm", "foreign", variant=True, secondary=True),
    Score("uncertainty", "both", drawn=True),
    Score("foreignness", "foreign", drawn=True),
)


def _with_joint(score: Score) -> tuple[Score, ...]:
    """The score, and behind a secondary one that which joins it with Max.P."""
    return (score, Score(f"{SIRC}{score.name}", "both", variant=True)) if score.secondary else (score,)


TABLE = tuple(each for score in _FORMULAS for each in _with_joint(score))
"""In the order of results rows. The scores that only one method has stand before the first secondary one."""
NAMES = tuple(score.name for score in TABLE)
"""Methods and detectors add scores of their own."""
LABELS = {score.name: score.label for score in TABLE if score.label is not None}
RECOMMENDED = ("sphere_energy", "energy")
"""The first of these that a model has is the secondary score of `uncertainty`."""
FOREIGNNESS = ("density_energy", "sphere_energy", "energy")
"""The first of these that a model has is its `foreignness`."""
DRAWN = tuple(score.name for score in TABLE if score.drawn)
_VARIANTS = {score.name for score in TABLE if score.variant}


def is_variant(name: str) -> bool:
    """Whether a list of the usual scores leaves it out; it does every joint one, also that of a detector."""
    return name in _VARIANTS or name.startswith(SIRC)


def detector_scores(detector: str) -> tuple[str, str]:
    """The name of a detector's score, and that of its score joined with Max.P."""
    name = detector.replace("-", "_")
    return name, f"{SIRC}{name}"
