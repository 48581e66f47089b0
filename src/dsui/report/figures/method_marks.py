"""How the lines of a comparison are drawn: each method has a colour, dashes and a marker of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsui.report.comparison_lines import MIXTURES
from dsui.report.figures.canvas import INK, PAPER, series_styles
from dsui.report.metric_formats import MetricFormat
from dsui.report.tables import Line, Table

OURS = ("dsui", "ds-ui,", "ds-ui")
"""How the labels of DS-UI's lines begin."""
PERCENT_LIMIT = 101.0
"""The largest end of an axis in per cent: a mean plus its deviation may exceed 100, but no figure does. The rest leaves
room for a marker."""
MARGIN = 0.25
"""Below the lowest figure of a panel, as a share of the distance to the highest."""


class MethodMark(NamedTuple):
    """`fill` is the colour inside a marker."""

    color: str
    dashes: str
    marker: str
    fill: str


def marked_lines(table: Table) -> list[tuple[Line, MethodMark]]:
    """The table's own lines that have figures; a line without any keeps its mark from the others all the same."""
    own = [line for line in table.lines if not line.quoted]
    return [(line, mark) for line, mark in zip(own, _method_marks(own), strict=True) if has_figure(line)]


def has_figure(line: Line) -> bool:
    return any(cell.mean is not None for cell in line.cells)


def _method_marks(own: Sequence[Line]) -> list[MethodMark]:
    """DS-UI is dashed and all others are solid, as in the paper. A single line of DS-UI is drawn in ink and leaves the
    colours to the others. A line by the mixtures has the colour of the line that it belongs to, dots and open marks."""
    labels = [line.label for line in own]
    bases = [label.removesuffix(MIXTURES) for label in labels]
    ours = [label.split(" ")[0].lower() in OURS for label in labels]
    alone, styles = len({base for base, mine in zip(bases, ours, strict=True) if mine}) == 1, series_styles()
    looks: dict[str, tuple[str, str]] = {}
    for base, mine in zip(bases, ours, strict=True):
        if base not in looks:
            looks[base] = (INK, "X") if mine and alone else next(styles)[::2]
    found = []
    for label, base, mine in zip(labels, bases, ours, strict=True):
        color, marker = looks[base]
        if label == base:
            found.append(MethodMark(color, "--" if mine else "-", marker, color))
        else:
            found.append(MethodMark(color, ":", marker, PAPER))
    return found


def panel_limits(limits: tuple[float, float], table: Table, unit: MetricFormat) -> tuple[float, float]:
    """The ends of an axis by the means of the figures: a bar may be longer than all of them are apart; it leaves the
    panel."""
    low, high = limits
    shown = [unit.scale * cell.mean for line, _ in marked_lines(table) for cell in line.cells if cell.mean is not None]
    if shown:
        low = max(low, min(shown) - MARGIN * (max(shown) - min(shown)) - 1)
    return low, min(high, PERCENT_LIMIT) if unit.unit == "%" else high
