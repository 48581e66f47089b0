"""Coverage against what a threshold lets through: errors among the accepted images, and foreign images."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from dsui.report.figures.canvas import INK, Drawing, add_legend_below, new_panel, series_styles, styled
from dsui.report.figures.curves import thin_curve
from dsui.report.figures.names import shorten

MARK_SIZE = 8.0
READING = "Read it from right to left, as the threshold gets stricter: the lower a line, the better."
LEAST_COVERAGE = 0.5
"""Where the axis begins, unless the chosen thresholds accept less: few use a model that rejects more."""


@styled
def tradeoff_curves(
    name: str,
    coverage: Tensor,
    lines: Mapping[str, Tensor],
    quantity: str,
    chosen: tuple[float, Mapping[str, float]] | None,
    caption: str,
) -> Drawing:
    """`lines` [P] by name, over coverage [P]; `chosen`: the coverage of the chosen thresholds, and what each line's
    quantity is there."""
    from matplotlib.ticker import PercentFormatter

    figure, axes = new_panel()
    told = []
    for (label, values), style in zip(lines.items(), series_styles(), strict=False):
        x, y = thin_curve(coverage, values)
        axes.plot(x, y, color=style.color, linestyle=style.dashes, label=shorten(label))
        if chosen is not None and label in chosen[1]:
            place = chosen[0], chosen[1][label]
            axes.plot(*place, marker="o", markersize=MARK_SIZE, color=style.color, markeredgecolor=INK, zorder=4)
            told.append(f"{label} {place[1]:.1%}")
    least = LEAST_COVERAGE if chosen is None else min(LEAST_COVERAGE, chosen[0] - 0.02)
    axes.set(xlim=(least, 1.01), xlabel="coverage: in-domain images accepted", ylabel=quantity)
    axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=None))
    if len(lines) > 1:
        add_legend_below(figure, axes)
    last = ", ".join(f"{label} {values[-1].item():.1%}" for label, values in lines.items())
    at = "" if chosen is None else f"At a coverage of {chosen[0]:.1%}: {', '.join(told)}. "
    return Drawing(name, figure, caption, f"{at}With every in-domain image accepted: {last}.", READING)
