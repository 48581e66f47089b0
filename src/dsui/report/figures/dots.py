"""Methods as dots with bars, a row for each data set or pair of sets: these have no order, so no line joins them.

Within a row the methods stand below each other in the order of the legend, so that no bar hides another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from dsui.report.figures.canvas import FAINT
from dsui.report.figures.method_marks import marked_lines, panel_limits
from dsui.report.figures.names import shorten
from dsui.report.metric_formats import MetricFormat
from dsui.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEP, GAP = 0.115, 0.16
"""Height in inches of a method, and of the space between two rows."""
AROUND = 0.55
"""Height of the axis with its label, and of a title."""
LONG_NAME, NAME_HEIGHT = 13, 2
"""A longer name of a row is broken into two lines, which need as much height as so many methods."""
Rows = list[list[str]]


def dot_rows(tables: Sequence[Table]) -> Rows:
    """For each place, which are the columns of all `tables`, the labels of the lines that have a figure there."""
    drawn = [line for table in tables for line, _ in marked_lines(table)]
    places = range(len(tables[0].columns))
    return [list(dict.fromkeys(line.label for line in drawn if line.cells[p].mean is not None)) for p in places]


def dots_height(rows: Rows) -> float:
    """Inches of a panel; a place without figures has a thin row."""
    return AROUND + _edges(rows)[-1]


def draw_dots(axes: Axes, places: Sequence[str], rows: Rows, table: Table, unit: MetricFormat) -> None:
    """The figures of a table in the unit of its metric; `rows` may be those of several panels beside each other."""
    edges = _edges(rows)
    for line, mark in marked_lines(table):
        shown = [(place, cell) for place, cell in enumerate(line.cells) if cell.mean is not None]
        axes.errorbar(
            [unit.scale * (cell.mean or 0.0) for _, cell in shown],
            [sum(edges[place : place + 2]) / 2 + STEP * _below(rows[place], line.label) for place, _ in shown],
            xerr=[math.nan if cell.deviation is None else unit.scale * cell.deviation for _, cell in shown],
            color=mark.color,
            linestyle="none",
            marker=mark.marker,
            markerfacecolor=mark.fill,
            elinewidth=0.9,
            capsize=2,
            label=shorten(line.label),
        )
    axes.set_yticks([sum(ends) / 2 for ends in pairwise(edges)], [*map(_broken, places)])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(edges[-1], 0)
    axes.grid(axis="y", visible=False)
    for edge in edges[1:-1]:
        axes.axhline(edge, color=FAINT, linewidth=0.5)
    axes.set_xlim(panel_limits(axes.get_xlim(), table, unit))


def _below(labels: Sequence[str], label: str) -> float:
    """How many methods below the middle of its row a method stands."""
    return labels.index(label) - (len(labels) - 1) / 2


def _edges(rows: Rows) -> list[float]:
    """Where the rows begin and the last one ends, in inches from the top."""
    return list(accumulate((GAP + STEP * max(len(labels), NAME_HEIGHT) for labels in rows), initial=0.0))


def _broken(place: str) -> str:
    """A long name in two lines: behind its arrow, or else behind its last comma."""
    name = shorten(place)
    if len(name) > LONG_NAME:
        for end in ("→ ", ", "):
            first, found, second = name.rpartition(end)
            if found:
                return f"{first}{end.rstrip()}\n{second}"
    return name
