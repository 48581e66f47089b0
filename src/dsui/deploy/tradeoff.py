"""What thresholds of one run trade: the more images like the training images they accept, the more errors and foreign
images they let through.

A point of the curve is a rank j among the in-domain images: an image is accepted if, by each of the scores, fewer than
j of them have a smaller value. With one score these are all its thresholds; with two, those that reject equally many
each, as `dsui.runs.threshold` chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dsui.deploy.scorer import ScoredSet, Scorer
from dsui.deploy.threshold_effects import OWN, SetEffect, set_effect
from dsui.detectors.fitted import FittedDetector
from dsui.errors import DsuiError
from dsui.evaluation.cache import ImageSource
from dsui.evaluation.tasks import Evaluation
from dsui.runs.acceptance import Thresholds
from dsui.runs.calibration import Calibration, stored_calibration
from dsui.runs.saved_thresholds import saved_tensors, saved_thresholds
from dsui.runs.threshold import joint_ranks

USUAL_COVERAGE = 0.95


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """[P] each, from the strictest thresholds to the one that accepts every in-domain image."""

    scores: tuple[str, ...]
    coverage: Tensor
    """The share of the in-domain images that is accepted."""
    errors: Tensor
    """The share of the accepted ones that is predicted wrongly."""
    passing: dict[str, Tensor]
    """The share of foreign images that is accepted, set by set."""
    thresholds: Thresholds | None
    """Those marked on the curve; None where there are no images to choose any by."""
    effects: dict[str, SetEffect]
    """What these do to each set, also to the in-domain images."""
    saved: bool
    """Whether the run keeps them. Otherwise they are those of the usual coverage."""


def measure_tradeoff(
    evaluation: Evaluation, foreign: Mapping[str, ImageSource], warn: Callable[[str], None] = lambda _sentence: None
) -> Tradeoff:
    """Of the scores that the run keeps thresholds of, or of its uncertainty; `foreign` sets by name."""
    facts, device = evaluation.cache.facts, evaluation.cache.device
    calibration = stored_calibration(facts)
    scorer, chosen = Scorer(calibration.reference), None
    try:
        chosen = saved_thresholds(facts.path)
        if chosen is not None and chosen.detector is not None:
            fitted = FittedDetector.of(chosen.detector, saved_tensors(facts.path), device)
            scorer = scorer._replace(detector=fitted, device=device)
    except (DsuiError, ValueError) as error:
        warn(str(error))
        chosen = None
    own = scorer.of_set(evaluation.outputs(evaluation.sources.own()))
    others = {name: scorer.of_set(evaluation.outputs(source)) for name, source in foreign.items()}
    return tradeoff(own, others, chosen or _usual(calibration), saved=chosen is not None)


def tradeoff(own: ScoredSet, foreign: Mapping[str, ScoredSet], chosen: Thresholds | None, saved: bool) -> Tradeoff:
    """From the scores of in-domain images, of which there is at least one, and of foreign ones."""
    names = ("uncertainty",) if chosen is None else tuple(limit.score for limit in chosen.limits)
    among = [own.scores[name] for name in names]
    ranks, order = joint_ranks(among, among).sort()
    points, counts = ranks.unique_consecutive(return_counts=True)
    accepted = counts.cumsum(0)
    wrong = own.errors[order].cumsum(0)[accepted - 1]
    passing = {}
    for name, images in foreign.items():
        theirs = joint_ranks([images.scores[each] for each in names], among).sort().values
        passing[name] = torch.searchsorted(theirs, points, right=True).double() / max(1, len(theirs))
    sets = {OWN: own, **foreign}
    effects = {} if chosen is None else {name: set_effect(name, images, chosen) for name, images in sets.items()}
    return Tradeoff(names, accepted / len(ranks), wrong / accepted, passing, chosen, effects, saved)


def _usual(calibration: Calibration) -> Thresholds | None:
    try:
        return calibration.threshold(USUAL_COVERAGE)
    except DsuiError:  # no held-out images, or too few
        return None
