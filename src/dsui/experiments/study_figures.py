"""The figures of a study as the paper draws them: 3, 5 and 6 from rows, 2, 4 and 7 from the points that runs left.

`figure_points` explains the points. They may come from a study or from the lines of its figure.csv, where every value
is text. Of several seeds the first is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from dsui.experiments.figure_points import OWN
from dsui.experiments.study import Study
from dsui.experiments.study_table import columns
from dsui.report.comparison_lines import MIXTURES, relabel, with_mixtures
from dsui.report.figures.canvas import Drawing
from dsui.report.figures.distributions import FittedPanel, Gaussian, fitted_distributions
from dsui.report.figures.embedding import EmbeddingPanel, embeddings
from dsui.report.figures.method_panels import PLOTS, rows_in_four_panels
from dsui.report.figures.profile import profile

Points = Sequence[Mapping[str, Any]]
FIGURE, PROFILE = "figure", "profile"
"""The names of the drawings; a study of several methods has one of each for every method after the first."""
STREAMS = {"": "", "density_": " of the mixtures"}
PANELS = {"own": "", "with foreign": " with foreign images"}


def draw_study(study: Study) -> list[Drawing]:
    """The figures of a study that is done or partly done; none before there is anything to draw."""
    grid = study.grid
    if grid.figure == "curve":
        rows = [relabel(row, cell.label) for cell in grid.cells for row in study.result(cell).rows]
        figures = [figure for figure in columns(grid) if figure.task in PLOTS]
        labels = dict.fromkeys(cell.label for cell in grid.cells)
        order = [label for cell in labels for label in (cell, f"{cell}{MIXTURES}")]
        drawn = rows_in_four_panels(FIGURE, list(with_mixtures(rows)), figures, order, grid.title)
        return [] if drawn is None else [drawn[0]]
    points = [
        {"method": cell.label, "seed": cell.config.seed, **p} for cell in grid.cells for p in study.result(cell).points
    ]
    if not points:
        return []
    if grid.figure == "embedding":
        return [draw_embeddings(FIGURE, points, grid.title)]
    return draw_distributions(points, grid.title)


def draw_distributions(points: Points, title: str) -> list[Drawing]:
    """Figure 4, and Figure 2, right, where there are its points, of each method."""
    drawn: list[Drawing] = []
    for number, (method, own) in enumerate(_first_runs(points).items()):
        ending = f"-{number + 1}" if number else ""
        moments = [point for point in own if point.get("score")]
        caption = f"{title.removesuffix('.')}, {method}: a Gaussian for each class and for foreign images."
        drawn.append(fitted_distributions(f"{FIGURE}{ending}", _fitted_panels(moments), caption))
        if profiles := [point for point in own if point.get("image")]:
            drawn.append(_draw_profile(f"{PROFILE}{ending}", profiles))
    return drawn


def draw_embeddings(name: str, points: Points, title: str) -> Drawing:
    """Figure 7: all methods without foreign images, then all with them."""
    runs = _first_runs(points)
    shown = [
        _embedding_panel([point for point in own if point["panel"] == panel], classes, f"{method}{text}")
        for panel, text in PANELS.items()
        for method, own in runs.items()
        if (classes := list(dict.fromkeys(point["class"] for point in own if point["panel"] == "own")))
    ]
    caption = f"{title.removesuffix('.')}: t-SNE, axes without units; foreign images are crosses."
    return embeddings(name, shown, caption)


def _first_runs(points: Points) -> dict[str, list[Mapping[str, Any]]]:
    """The points of the first run of each method."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for (method, _), of_run in groupby(points, lambda point: (point["method"], point["seed"])):
        found.setdefault(method, list(of_run))
    return found


def _fitted_panels(moments: Iterable[Mapping[str, Any]]) -> list[FittedPanel]:
    """Max.P. and Ent., of the classifier and of the mixtures."""
    found: dict[str, tuple[dict[str, Gaussian], dict[str, Gaussian]]] = {}
    for point in moments:
        gaussian = Gaussian(float(point["mean"]), float(point["deviation"] or 0))
        own_and_foreign = found.setdefault(point["score"], ({}, {}))
        own_and_foreign[int(point.get("foreign") or 0)][point["x"]] = gaussian
    panels = []
    for prefix, stream in STREAMS.items():
        for measure, quantity in (("max_probability", "largest probability"), ("entropy", "entropy")):
            if (score := f"{prefix}{measure}") in found:
                own, foreign = found[score]
                largest, unit = (1.0, "") if measure == "max_probability" else (math.log(max(2, len(own))), " (nats)")
                panels.append(FittedPanel(f"{quantity}{stream}{unit}", largest, own, foreign))
    return panels


def _embedding_panel(points: Points, classes: Sequence[str], title: str) -> EmbeddingPanel:
    positions = np.array([(float(point["x"]), float(point["y"])) for point in points])
    numbers = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([numbers.get(point["class"], -1) for point in points])
    inside = (labels >= 0).numpy()
    others = dict.fromkeys(point["class"] for point in points if point["class"] not in numbers)
    foreign = (", ".join(others), positions[~inside]) if others else None
    return EmbeddingPanel(positions[inside], labels[labels >= 0], classes, foreign, title)


def _draw_profile(name: str, profiles: Sequence[Mapping[str, Any]]) -> Drawing:
    images: dict[str, dict[str, float]] = {}
    for point in profiles:
        images.setdefault(point["image"], {})[point["x"]] = float(point["log_density"])
    foreign = next(image for image in images if image != OWN)
    normal, abnormal = (torch.tensor(list(images[image].values()), dtype=torch.float64) for image in (OWN, foreign))
    return profile(name, list(images[OWN]), normal, abnormal, foreign)
