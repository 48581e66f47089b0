"""What two figures of the paper need beside results rows: values of single images.

Figure 4, `distributions`: mean and deviation of Max.P. and Ent. over the images of each class and of each foreign set,
the Gaussians it draws. Figure 7, `embedding`: t-SNE of the features in two dimensions, of in-domain images alone and
together with foreign ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from dsui.evaluation.cache import ImageSource
from dsui.evaluation.sources import ImageSources
from dsui.evaluation.tasks import Evaluation

VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "max_probability": lambda score: 1 - score.exp(),
    "entropy": Tensor.exp,
    "density_max_probability": lambda score: 1 - score.exp(),
    "density_entropy": Tensor.exp,
}
"""Scores are ln(1 - max p) and ln H; the paper shows max p and H."""
EMBEDDED = 2000
"""Most images of a set in the embedding, evenly chosen; the paper does not say how many it shows."""
PERPLEXITY, SEED = 30.0, 0


def distributions(asked: Evaluation, sources: ImageSources, foreign: Sequence[str]) -> list[dict[str, Any]]:
    """One point for each score and class, or foreign set."""
    points = []
    for name, source in _named(sources, foreign):
        stored, scores = asked.scores(source)
        labels = stored.whole().labels
        assert labels is not None
        groups = {name: torch.ones(len(labels), dtype=torch.bool)} if name else _by_class(labels, stored.classes)
        for score, value in VALUES.items():
            if score not in scores:
                continue
            values = value(scores[score].cpu())
            for group, members in groups.items():
                own = values[members]
                moments = {"mean": own.mean().item(), "deviation": own.std().item() if len(own) > 1 else None}
                points.append({"x": group, "score": score, **moments, "images": len(own)})
    return points


def embedding(asked: Evaluation, sources: ImageSources, foreign: Sequence[str]) -> list[dict[str, Any]]:
    """One point for each image shown: its panel ("own" or "with foreign"), its class or foreign set, and its place."""
    features, names = [], []
    for name, source in _named(sources, foreign):
        stored = asked.scores(source)[0]
        outputs = stored.whole()
        assert outputs.labels is not None
        chosen = torch.arange(0, len(outputs), -(-len(outputs) // EMBEDDED))
        features.append(outputs.features[chosen])
        names.append([name or stored.classes[label] for label in outputs.labels[chosen].tolist()])
    panels = {"own": (features[0], names[0]), "with foreign": (torch.cat(features), list(chain(*names)))}
    return [
        {"panel": panel, "class": name, "x": x, "y": y}
        for panel, (points, classes) in panels.items()
        for name, (x, y) in zip(classes, _placed(points), strict=True)
    ]


def _named(sources: ImageSources, foreign: Sequence[str]) -> list[tuple[str, ImageSource]]:
    """The run's own images, without a name, and the foreign sets."""
    return [("", sources.own()), *((name, sources.foreign(name)) for name in foreign)]


def _by_class(labels: Tensor, classes: Sequence[str]) -> dict[str, Tensor]:
    found = {name: labels == label for label, name in enumerate(classes)}
    return {name: members for name, members in found.items() if bool(members.any())}


def _placed(features: Tensor) -> list[list[float]]:
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    fitted = TSNE(perplexity=perplexity, init="pca", random_state=SEED).fit_transform(features.float().numpy())
    places: list[list[float]] = fitted.tolist()
    return places
