"""Methods as lines over the strength of an attack, the one axis of a comparison that has an order; DS-UI dashed.

All methods share the same x: moved sideways, a steep line would seem to cross one that is lower everywhere. A line has
a gap where its method has no figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsui.report.figures.method_marks import marked_lines, panel_limits
from dsui.report.figures.names import shorten
from dsui.report.metric_formats import MetricFormat
from dsui.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRENGTH = "strength ε of the attack, in pixel units of 0 to 1"
WEAK, TICKS = 0.1, (0.01, 0.03, 0.1, 0.3, 1)
"""With attacks weaker than this the x-axis is logarithmic; on a linear one their points would overlap."""


def draw_lines(axes: Axes, strengths: Sequence[float], table: Table, unit: MetricFormat) -> None:
    """A line for each line of the table that has figures, in the unit of its metric."""
    for line, mark in marked_lines(table):
        axes.errorbar(
            strengths,
            [math.nan if cell.mean is None else unit.scale * cell.mean for cell in line.cells],
            [math.nan if cell.deviation is None else unit.scale * cell.deviation for cell in line.cells],
            color=mark.color,
            linestyle=mark.dashes,
            marker=mark.marker,
            markerfacecolor=mark.fill,
            elinewidth=0.9,
            capsize=2.5,
            label=shorten(line.label),
        )
    if 0 < min(strengths) < WEAK:
        axes.set_xscale("log")
        ticks = [number for number in TICKS if min(strengths) <= number <= max(strengths)]
        axes.set_xticks(ticks, [f"{number:g}" for number in ticks])
        axes.minorticks_off()
    axes.set_ylim(panel_limits(axes.get_ylim(), table, unit))
