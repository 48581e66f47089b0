"""Curves of rankings: ROC, precision over recall, risk over coverage; one line for each score.

The points are those of `dsui.evaluation.metrics`; of long curves only as many are drawn as the eye can tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from dsui.evaluation.metrics import aupr, aurc, auroc, precision_recall_curve, risk_coverage_curve, roc_curve
from dsui.report.figures.canvas import FAINT, Drawing, add_legend_below, new_panel, series_styles, styled
from dsui.report.metric_formats import METRICS

POINTS = 300
"""Most points of a drawn curve."""


class CurveKind(NamedTuple):
    """`curve` and `area` take scores and the marks of positives; `metric` names the area."""

    curve: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    area: Callable[[Tensor, Tensor], float]
    metric: str
    x: str
    y: str
    reading: str
    drawstyle: str = "default"


def _recall_precision(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    precision, recall = precision_recall_curve(scores, positive)
    return recall, precision


ROC = CurveKind(
    roc_curve,
    auroc,
    "auroc",
    "false alarms: {negatives} flagged",
    "{positives} flagged",
    "The closer a curve comes to the top left corner, the better the score; on the faint line it is mere chance.",
)
PRECISION_RECALL = CurveKind(
    _recall_precision,
    aupr,
    "aupr",
    "recall: {positives} flagged",
    "precision",
    "Read it from left to right, as more and more images are flagged: the higher a curve, the fewer of them are false "
    "alarms.",
    "steps-pre",
)
RISK_COVERAGE = CurveKind(
    risk_coverage_curve,
    aurc,
    "aurc",
    "coverage: images kept",
    "risk: errors among kept",
    "Read it from right to left, as the most uncertain images are set aside one by one: the lower a curve, the fewer "
    "errors remain among the kept.",
)


@styled
def curves(
    name: str, kind: CurveKind, scores: Mapping[str, Tensor], positive: Tensor, positives: str, negatives: str
) -> Drawing:
    """`scores`: [N] by their label; `positives` and `negatives` name the two kinds of images, as in "errors"."""
    from matplotlib.ticker import PercentFormatter

    figure, axes = new_panel()
    metric = METRICS[kind.metric]
    areas = []
    for (label, values), style in zip(scores.items(), series_styles(), strict=False):
        x, y = thin_curve(*kind.curve(values, positive))
        areas.append(f"{label} {metric.scale * kind.area(values, positive):.{metric.decimals}f}")
        axes.plot(x, y, color=style.color, linestyle=style.dashes, drawstyle=kind.drawstyle, label=areas[-1])
    groups = {"positives": positives, "negatives": negatives}
    base_rate = positive.double().mean().item()
    if kind is ROC:
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    if kind is PRECISION_RECALL:
        axes.plot([0, 1], [base_rate, base_rate], color=FAINT, linewidth=1.5, zorder=1)  # below the curves
    if kind is not RISK_COVERAGE:
        axes.set_ylim(0, 1.03)
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlim=(0, 1), xlabel=kind.x.format(**groups), ylabel=kind.y.format(**groups))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=None))
    add_legend_below(figure, axes)
    better = "higher" if metric.higher_is_better else "lower"
    title = {
        "auroc": "ROC",
        "aupr": f"Precision (share of {positives} among flagged images) over recall",
        "aurc": "Risk over coverage",
    }[kind.metric]
    caption = f"{title}; the legend gives {metric.title} in {metric.unit}, {better} is better."
    if kind is PRECISION_RECALL:
        caption += f" The faint line is chance: {100 * base_rate:.1f} %, the share of {positives} among all images."
    return Drawing(name, figure, caption, f"{', '.join(areas)}.", kind.reading)


def thin_curve(x: Tensor, y: Tensor, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """At most `points` points at even steps along the curve, with both ends."""
    if len(x) <= points:
        return x, y
    length = torch.cat([x.new_zeros(1), (x.diff().abs() + y.diff().abs()).cumsum(0)])
    wanted = torch.linspace(0, 1, points, dtype=length.dtype) * length[-1]
    chosen = torch.searchsorted(length, wanted).clamp(max=len(x) - 1).unique()
    return x[chosen], y[chosen]
