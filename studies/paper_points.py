"""Figures 2 (right), 4 and 7, which need values of single images: the figure.csv of `dsui reproduce`, in results/.

dsui reproduce distributions      # its figure.csv becomes results/paper-distributions.csv: Figures 2 and 4
dsui reproduce tsne               # its figure.csv becomes results/paper-tsne.csv: Figure 7
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dsui.experiments.study_figures import FIGURE, PROFILE, draw_distributions, draw_embeddings
from dsui.report.figures.canvas import Drawing

TSNE = "tsne"


class PointsFigure(NamedTuple):
    """`grid`: the study that leaves its points; `drawing`: the name that the study gives to it."""

    number: int
    title: str
    grid: str
    drawing: str = FIGURE

    def path(self, results: Path) -> Path:
        return results / f"paper-{self.grid}.csv"


FIGURES = {
    "figure2": PointsFigure(2, "Class densities of a normal and an abnormal image", "distributions", PROFILE),
    "figure4": PointsFigure(4, "Max.P. and Ent. on CIFAR-10 → SVHN", "distributions"),
    "figure7": PointsFigure(7, "Features in two dimensions, CIFAR-10 with SVHN", TSNE),
}


def draw_points(figure: PointsFigure, results: Path, name: str) -> Drawing | None:
    """The figure from its committed points; None where there are none yet."""
    path = figure.path(results)
    if not path.exists():
        return None
    points = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    title = f"Figure {figure.number}: {figure.title}"
    drawn = [draw_embeddings(FIGURE, points, title)] if figure.grid == TSNE else draw_distributions(points, title)
    found = next((drawing for drawing in drawn if drawing.name == figure.drawing), None)
    return None if found is None else replace(found, name=name)
