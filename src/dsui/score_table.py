"""The table of scores: each one's name, formula, label, and the question it answers.

Everything that lists scores reads this table: results rows, the tables and figures of reports, `dsui evaluate` and the
completion of its options. Completion must not wait for PyTorch, so the formulas are imported when one is computed.

A secondary score S asks whether an image is foreign. SIRC joins it with Max.P., as the score `sirc_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from dsui.outputs import Outputs
    from dsui.score_formulas import Reference

SIRC = "sirc_"
"""How the name of a score begins that is joined with Max.P."""
RECOMMENDED = ("sphere_energy", "energy")
"""The first of these that a model has is the secondary score of `uncertainty`."""

Question = Literal["wrong", "foreign", "both"]
"""Is the prediction wrong, is the image foreign, or either."""


class Score(NamedTuple):
    """One uncertainty of N images."""

    name: str
    """In results rows and options."""
    question: Question
    compute: Callable[[Outputs, Reference, Mapping[str, Tensor]], Tensor | None]
    """[N] from the outputs, what is known of the training images, and the scores that stand before this one in the
    table; None where the outputs do not allow it."""
    label: str | None = None
    """What readers of tables and figures see instead of the name."""
    variant: bool = False
    """Whether it is a variant of another score: then `dsui evaluate` writes it, and shows it only on request."""


class SecondaryScore(NamedTuple):
    """A score that SIRC can join with Max.P.; it needs no knowledge of the training images."""

    name: str
    compute: Callable[[Outputs], Tensor | None]
    label: str | None = None
    variant: bool = False


def _formulas() -> ModuleType:
    return import_module("dsui.score_formulas")


def _sphere(outputs: Outputs, formula: str) -> Tensor | None:
    """A formula of the logits on the sphere; None where the model has no sphere."""
    logits: Tensor | None = _formulas().sphere_logits(outputs)
    values: Tensor | None = None if logits is None else getattr(_formulas(), formula)(logits)
    return values


def _floored_posterior(outputs: Outputs, training: Reference) -> Tensor | None:
    if outputs.log_joint is None or training.log_floor is None:
        return None
    values: Tensor = _formulas().floored_posterior(outputs.log_joint, training.log_floor)
    return values


def _uncertainty(found: Mapping[str, Tensor]) -> Tensor:
    joint = (f"{SIRC}{name}" for name in RECOMMENDED if f"{SIRC}{name}" in found)
    return found[next(joint, "max_probability")]


PLAIN: tuple[Score, ...] = (
    Score("max_probability", "wrong", lambda out, *_: _formulas().max_probability(out.logits), "Max.P."),
    Score("entropy", "wrong", lambda out, *_: _formulas().entropy(out.logits), "Ent."),
    Score("max_logit", "foreign", lambda out, *_: _formulas().max_logit(out.logits), variant=True),
    Score("sphere_max_probability", "wrong", lambda out, *_: _sphere(out, "max_probability"), variant=True),
    Score(
        "density_max_probability",
        "wrong",
        lambda out, *_: None if out.class_scores is None else _formulas().max_probability(out.class_scores),
        "density Max.P.",
    ),
    Score(
        "density_entropy",
        "wrong",
        lambda out, *_: None if out.class_scores is None else _formulas().entropy(out.class_scores),
        "density Ent.",
        variant=True,
    ),
    Score("floored_posterior", "both", lambda out, training, _: _floored_posterior(out, training), variant=True),
    Score(
        "mutual_information",
        "both",
        lambda out, *_: None if out.samples is None else _formulas().mutual_information(out.samples),
    ),
)
"""The scores of one formula. In results, the scores that a method has of its own stand behind these."""

_SECONDARY = (
    # the logits of a method that samples are log-probabilities, whose energy is 0 up to rounding
    SecondaryScore("energy", lambda out: _formulas().energy(out.logits) if out.samples is None else None),
    SecondaryScore(
        "density_energy",
        lambda out: None if out.class_scores is None else _formulas().energy(out.class_scores),
        variant=True,
    ),
    SecondaryScore(
        "log_density",
        lambda out: None if out.log_joint is None else _formulas().log_density(out.log_joint),
        "log-density",
    ),
    SecondaryScore("sphere_energy", lambda out: _sphere(out, "energy"), variant=True),
    SecondaryScore("norm", lambda out: None if out.norm is None else -out.norm.double(), variant=True),
)
SECONDARY = {score.name: score.compute for score in _SECONDARY}
"""The secondary scores by name; None where a model does not have one."""


def _with_sirc(score: SecondaryScore) -> tuple[Score, Score]:
    """A secondary score and its `sirc_` score; both need the moments of the training images."""

    def secondary(outputs: Outputs, training: Reference, _: Mapping[str, Tensor]) -> Tensor | None:
        return score.compute(outputs) if score.name in training.moments else None

    def joint(outputs: Outputs, training: Reference, found: Mapping[str, Tensor]) -> Tensor | None:
        if score.name not in found or score.name not in training.moments:
            return None
        values: Tensor = _formulas().sirc(outputs.logits, found[score.name], *training.moments[score.name])
        return values

    return (
        Score(score.name, "foreign", secondary, score.label, score.variant),
        Score(f"{SIRC}{score.name}", "both", joint, variant=True),
    )


JOINT: tuple[Score, ...] = (
    *chain.from_iterable(map(_with_sirc, _SECONDARY)),
    Score("uncertainty", "both", lambda _out, _training, found: _uncertainty(found)),
)
"""The secondary scores, those that join them with Max.P., and the recommended one of these."""

TABLE = (*PLAIN, *JOINT)
NAMES = tuple(score.name for score in TABLE)
"""Methods and detectors add scores of their own."""
LABELS = {score.name: score.label for score in TABLE if score.label is not None}
_VARIANTS = {score.name for score in TABLE if score.variant}


def is_variant(name: str) -> bool:
    """Whether a score is shown only on request; every joint one is, also that of a detector."""
    return name in _VARIANTS or name.startswith(SIRC)


def detector_scores(detector: str) -> tuple[str, str]:
    """The name of a detector's score, and that of its score joined with Max.P."""
    name = detector.replace("-", "_")
    return name, f"{SIRC}{name}"
