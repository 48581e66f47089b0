"""Training images whose label a model doubts most: labels that may be wrong.

    doubt = ln max_{c != t} p_c - ln p_t        t the label, p the probabilities of a model that did not see the image

A doubt above 0 means that another class is more likely. (The margin by which confident learning ranks; Northcutt,
Jiang and Chuang, JAIR 2021.)

A network learns wrong labels by heart, and then it does not doubt them. So p is never that of the run itself. There are
two sources:

    features    logistic regressions on the run's features, each without one fold of the images. This takes seconds. A
                trained network has put an image it saw where its label is, so it still hides some wrong labels; a
                frozen one has seen none.
    folds       the run's method is trained again without each fold. This takes as long as that many runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dsui.backbones.registry import HEAD
from dsui.data.dataset import ImageSet
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.folds import by_regression, by_training_again, folds_of, out_of_fold
from dsui.evaluation.sources import ImageSources
from dsui.progress import Progress, silent
from dsui.runs.images import read_split, training_part
from dsui.runs.model import RunFacts

REGRESSIONS = 5
"""Folds of the logistic regressions."""


@dataclass(frozen=True, eq=False)
class Suspects:
    """All training images of a run, most doubted first; `order` are their indices in `images`."""

    images: ImageSet
    order: Tensor
    doubt: Tensor
    """[N], in the order of `images`; NaN where an image is alone in its class, so that nothing can be said."""
    suggested: Tensor
    """[N] the most likely class beside the label."""
    log_probabilities: Tensor
    """[N, C]"""
    held_out: Tensor
    """[N] whether the run set the image aside."""
    folds: int
    """Models that were trained again; 0: logistic regressions on the run's features."""
    seen: bool
    """Whether the network behind the features was trained on these labels."""

    @property
    def contradicted(self) -> int:
        """How many images are more likely of another class."""
        return int((self.doubt > 0).sum())


def doubts(log_probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """[N] the doubt of each label, and [N] the most likely other class."""
    own = log_probabilities.gather(1, labels[:, None])[:, 0]
    other = log_probabilities.scatter(1, labels[:, None], -torch.inf).max(1)
    return other.values - own, other.indices


def find_suspects(
    facts: RunFacts,
    device: torch.device,
    *,
    folds: int = 0,
    root: Path | None = None,
    skip_bad: bool = False,
    keep: bool = True,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> Suspects:
    """Of a run's training images, held-out ones included. `folds` 0 judges by the run's features, a larger number
    trains so many models again. `keep` leaves computed outputs in the run's folder."""
    config = facts.config
    sources = ImageSources(config, facts.classes, "test", root, skip_bad, facts.images)
    source = sources.whole_training()
    images = source.load()
    labels, classes = images.labels, len(facts.classes)
    held_out = torch.ones(len(labels), dtype=torch.bool)
    held_out[training_part(config, images)] = False
    if folds == 0:
        with OutputCache(facts, device, keep, warn) as cache:
            features = cache.get(source._replace(load=lambda: images), progress).part("features")
        assert features is not None
        predict = by_regression(features, labels, classes)
    else:
        outliers = None if config.outliers is None else read_split(config, config.outliers, "train", root)
        predict = by_training_again(config, images, outliers, device, progress)
    found = out_of_fold(folds_of(labels, folds or REGRESSIONS, config.seed), classes, predict)
    doubt, suggested = doubts(found, labels)
    order = doubt.nan_to_num(-torch.inf).argsort(descending=True, stable=True)
    seen = config.recipe.neck or not (config.on_features or config.recipe.freeze_until == HEAD)
    return Suspects(images, order, doubt, suggested, found, held_out, folds, seen)
