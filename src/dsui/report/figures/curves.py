"""Curves behind the figures of a ranking: ROC, precision over recall, risk over coverage; one line for each score.

The points are those of `dsui.evaluation.metrics`; of long curves as many are drawn as the eye can tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from dsui.evaluation.metrics import aupr, aurc, auroc, precision_recall_curve, risk_coverage_curve, roc_curve
from dsui.report.columns import METRICS
from dsui.report.figures.canvas import FAINT, Drawing, legend_below, panel, pens, styled

POINTS = 300
"""Most points of a drawn curve."""


class Kind(NamedTuple):
    """`curve` and `area` take scores and marks; `metric` names the area."""

    curve: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    area: Callable[[Tensor, Tensor], float]
    metric: str
    x: str
    y: str
    drawstyle: str = "default"


def _recall_precision(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    precision, recall = precision_recall_curve(scores, positive)
    return recall, precision


ROC = Kind(roc_curve, auroc, "auroc", "false alarms: {negatives} flagged", "{positives} flagged")
PRECISION_RECALL = Kind(_recall_precision, aupr, "aupr", "recall: {positives} flagged", "precision", "steps-pre")
RISK_COVERAGE = Kind(risk_coverage_curve, aurc, "aurc", "coverage: images kept", "risk: errors among kept")


@styled
def curves(
    name: str, kind: Kind, scores: Mapping[str, Tensor], positive: Tensor, positives: str, negatives: str
) -> Drawing:
    """`scores`: [N] by their label; `positives` and `negatives` name the two kinds of images, as in "errors"."""
    from matplotlib.ticker import PercentFormatter

    figure, axes = panel()
    unit = METRICS[kind.metric]
    areas = []
    for (label, values), pen in zip(scores.items(), pens(), strict=False):
        x, y = thinned(*kind.curve(values, positive))
        areas.append(f"{label} {unit.scale * kind.area(values, positive):.{unit.decimals}f}")
        axes.plot(x, y, color=pen.color, linestyle=pen.dashes, drawstyle=kind.drawstyle, label=areas[-1])
    words = {"positives": positives, "negatives": negatives}
    base_rate = positive.double().mean().item()
    if kind is ROC:
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    if kind is PRECISION_RECALL:
        axes.plot([0, 1], [base_rate, base_rate], color=FAINT, linewidth=1.5, zorder=1)  # below the curves
    if kind is not RISK_COVERAGE:
        axes.set_ylim(0, 1.03)
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlim=(0, 1), xlabel=kind.x.format(**words), ylabel=kind.y.format(**words))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=None))
    legend_below(figure, axes)
    better = "higher" if unit.higher_is_better else "lower"
    title = {
        "auroc": "ROC",
        "aupr": f"Precision (share of {positives} among flagged images) over recall",
        "aurc": "Risk over coverage",
    }[kind.metric]
    caption = f"{title}; the figures are {unit.title} in {unit.unit}, {better} is better."
    if kind is PRECISION_RECALL:
        caption += f" A coin has {100 * base_rate:.1f} %, the share of {positives} among all images: the faint line."
    return Drawing(name, figure, caption, f"{', '.join(areas)}.")


def thinned(x: Tensor, y: Tensor, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """Points at even steps along the curve, both ends among them; all of them where there are no more."""
    if len(x) <= points:
        return x, y
    length = torch.cat([x.new_zeros(1), (x.diff().abs() + y.diff().abs()).cumsum(0)])
    wanted = torch.linspace(0, 1, points, dtype=length.dtype) * length[-1]
    chosen = torch.searchsorted(length, wanted).clamp(max=len(x) - 1).unique()
    return x[chosen], y[chosen]
