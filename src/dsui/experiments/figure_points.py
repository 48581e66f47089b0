"""Values of single images, which three figures of the paper need beside results rows.

Figure 4, `distributions`: mean and deviation of Max.P. and Ent. over the images of each class and of each foreign set,
the Gaussians it draws. With them come those of Figure 2, right, where the method models densities: the class densities
of the densest in-domain image that is classified correctly, and of the least dense foreign one. Figure 7, `embedding`:
t-SNE of the features in two dimensions, of in-domain images alone and together with foreign ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from dsui.checks import require
from dsui.evaluation.cache import ImageSource
from dsui.evaluation.sources import ImageSources
from dsui.evaluation.tasks import Evaluation
from dsui.report.figures.distributions import probability_or_entropy
from dsui.report.figures.profile import densest, least_dense
from dsui.report.tsne import PACKAGE, sample_features, tsne

SCORES = ("max_probability", "entropy", "density_max_probability", "density_entropy")
OWN = "in-domain"
"""What the points of Figure 2 call the image of the run's own set; the other is called by its set."""
EMBEDDED = 2000
"""Most images of a set in the embedding; the paper does not say how many it shows."""


def require_packages(figures: Iterable[str | None]) -> None:
    """Raise, before anything is trained, where one of these kinds of figure needs a package that is missing."""
    if "embedding" in figures:
        require(PACKAGE)


def distributions(evaluation: Evaluation, sources: ImageSources, foreign: Sequence[str]) -> list[dict[str, Any]]:
    """One point for each score and class, or foreign set, and one for each class and image of Figure 2."""
    points: list[dict[str, Any]] = []
    profiles: list[dict[str, Any]] = []
    for name, source in _named_sources(sources, foreign):
        stored, scores = evaluation.scores(source)
        labels = stored.part("labels")
        assert labels is not None
        groups = {name: torch.ones(len(labels), dtype=torch.bool)} if name else _by_class(labels, stored.classes)
        for score in SCORES:
            if score not in scores:
                continue
            values = probability_or_entropy(score, scores[score].cpu())
            for group, members in groups.items():
                own = values[members]
                moments = {"mean": own.mean().item(), "deviation": own.std().item() if len(own) > 1 else None}
                points.append({"x": group, "score": score, **moments, "images": len(own), "foreign": int(bool(name))})
        log_joint, logits = stored.part("log_joint"), stored.part("logits")
        if log_joint is not None and logits is not None:
            chosen = least_dense(log_joint) if name else densest(log_joint, logits.argmax(1) == labels)
            profile = zip(evaluation.cache.facts.classes, log_joint[chosen].tolist(), strict=True)
            profiles += [{"x": group, "image": name or OWN, "log_density": value} for group, value in profile]
    return points + profiles


def embedding(evaluation: Evaluation, sources: ImageSources, foreign: Sequence[str]) -> list[dict[str, Any]]:
    """One point for each image: its panel ("own" or "with foreign"), its class or foreign set, and its position."""
    features, names = [], []
    for name, source in _named_sources(sources, foreign):
        stored, _ = evaluation.scores(source)
        labels = stored.part("labels")
        assert labels is not None
        sample = sample_features(stored, EMBEDDED)
        features.append(sample.features)
        names.append([name or stored.classes[label] for label in labels[sample.indices].tolist()])
    panels = {"own": (features[0], names[0]), "with foreign": (torch.cat(features), list(chain(*names)))}
    return [
        {"panel": panel, "class": name, "x": x, "y": y}
        for panel, (points, classes) in panels.items()
        for name, (x, y) in zip(classes, tsne(points).tolist(), strict=True)
    ]


def _named_sources(sources: ImageSources, foreign: Sequence[str]) -> list[tuple[str, ImageSource]]:
    """The run's own images, without a name, and the foreign sets."""
    return [("", sources.own()), *((name, sources.foreign(name)) for name in foreign)]


def _by_class(labels: Tensor, classes: Sequence[str]) -> dict[str, Tensor]:
    found = {name: labels == label for label, name in enumerate(classes)}
    return {name: members for name, members in found.items() if bool(members.any())}
