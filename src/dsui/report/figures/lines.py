"""Figures 3, 5 and 6: methods as lines over data sets, pairs of sets or strengths of attack; DS-UI dashed.

A point is the mean over the runs of a method and its bar their deviation, from the same comparison as the tables. All
methods share the same x: moved sideways, a steep line would seem to cross one that is lower everywhere. A line has a
gap where its method has no figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dsui.evaluation.results import ResultRow
from dsui.report.columns import SCORES, UNKNOWN, Figure
from dsui.report.comparison import available, compare
from dsui.report.comparison_lines import MIXTURES
from dsui.report.figures.canvas import (
    INK,
    PAPER,
    Drawing,
    add_legend_below,
    new_panel,
    new_panels,
    series_styles,
    set_named_ticks,
    shorten,
    styled,
)
from dsui.report.metric_formats import METRICS
from dsui.report.tables import Line, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = [
    ("auroc", "max_probability"),
    ("auroc", "entropy"),
    ("aupr", "max_probability"),
    ("aupr", "entropy"),
    ("accuracy", "prediction"),
]
"""The four panels of the paper, and for attacks how many images are still classified correctly."""
FOUR = SHOWN[:4]
OURS = ("dsui", "ds-ui,", "ds-ui")
"""How the labels of DS-UI's lines begin."""
STRENGTH = "strength ε of the attack, in pixel units of 0 to 1"
WEAK, TICKS = 0.1, (0.01, 0.03, 0.1, 0.3, 1)
"""With attacks weaker than this the x-axis is logarithmic; on a linear one their points would overlap."""
PERCENT_LIMIT = 101.0
MARGIN = 0.25
"""Below the lowest point of a panel, as a share of the distance to the highest."""
"""The largest end of an axis in per cent: a mean plus its deviation may exceed 100, but no figure does. The rest leaves
room for a marker."""
FEWEST_PLACES = 2
"""A single place makes no line; its figures are in the tables."""


class LinePlot(NamedTuple):
    """A figure of the paper: the tasks it shows, and the place of a result on the x-axis."""

    name: str
    tasks: tuple[str, ...]
    place: Callable[[Figure], str | float]
    group: Callable[[Figure], str]
    """Each group of results has panels of its own."""


def _pair(figure: Figure) -> str:
    return f"{figure.data} → {_other(figure)}"


def _other(figure: Figure) -> str:
    return str(figure.foreign or UNKNOWN)


MISCLASSIFICATION = LinePlot(
    "misclassification", ("misclassification",), lambda f: f"{f.data}, {f.backbone}", lambda _: ""
)
"""Figure 3: over data set and backbone."""
PAIRS = LinePlot("pairs", ("ood", "open-set", "noise"), _pair, lambda f: f.backbone or "")
"""Figure 5: over pairs of in-domain and foreign set, noise and unknown classes among them."""
ATTACKS = LinePlot("fgsm", ("fgsm",), lambda f: float(f.foreign or 0), lambda f: f"{f.data}, {f.backbone}")
"""Figure 6: over the strength of FGSM."""
PLOTS = {task: plot for plot in (MISCLASSIFICATION, PAIRS, ATTACKS) for task in plot.tasks}


def places(figures: Sequence[Figure]) -> list[str | float]:
    """The places on the x-axis of the figures of one plot; pairs that share their data set are named by the other."""
    plot = PLOTS[figures[0].task]
    if plot is PAIRS and len({figure.data for figure in figures}) == 1:
        return [_other(figure) for figure in figures]
    return [plot.place(figure) for figure in figures]


def panels(rows: Sequence[ResultRow], plot: LinePlot) -> list[tuple[Drawing, Table]]:
    """The panels of each group, each with the table it shows; only those with figures at two places or more."""
    figures = [f for f in available(rows) if f.task in plot.tasks and (f.metric, f.score) in SHOWN]
    groups = dict.fromkeys(map(plot.group, figures))
    drawn = []
    for number, group in enumerate(groups):
        for metric, score in SHOWN:
            wanted = [f for f in figures if (f.metric, f.score) == (metric, score) and plot.group(f) == group]
            if plot is ATTACKS:
                wanted.sort(key=plot.place)
            home = {f.data for f in wanted} if plot is PAIRS else set()
            against = f", {next(iter(home))} against other images" if len(home) == 1 else ""
            subject = f"{METRICS[metric].title} of {SCORES.get(score, f'the {score}')}"
            title = f"{subject[0].upper()}{subject[1:]}{against}{f' on {group}' if len(groups) > 1 else ''}"
            table = compare(rows, wanted, title=title) if wanted else None
            if table is not None and _places_with_figures(table) >= FEWEST_PLACES:
                parts = [plot.name, *([str(number + 1)] if number else []), metric, score.replace("_", "-")]
                drawn.append((lines("-".join(parts), places(wanted), table, metric), table))
    return drawn


@styled
def lines(name: str, at: Sequence[str | float], table: Table, metric: str) -> Drawing:
    """One line for each of the table's; `at` are the places of its columns on the x-axis, names or numbers."""
    figure, axes = new_panel()
    drawn = _draw_lines(axes, at, table, metric)
    if named := [place for place in at if isinstance(place, str)]:
        set_named_ticks(figure, axes, range(len(at)), named)
    else:
        axes.set_xlabel(STRENGTH)
    unit = METRICS[metric]
    axes.set_ylabel(f"{unit.title} ({unit.unit}), {'higher' if unit.higher_is_better else 'lower'} is better")
    add_legend_below(figure, axes)
    return Drawing(name, figure, f"{table.title.removesuffix('.')}.", f"{_describe_lines(drawn, at, unit.scale)}.")


@styled
def four_panels(name: str, at: Sequence[str | float], panels: Sequence[tuple[Table, str]], caption: str) -> Drawing:
    """The four panels of one of the paper's figures, with one legend. Each is a table and the metric of its figures,
    its title stands above it, and `at` are the places of the columns of all tables."""
    figure, grid = new_panels(2, 2, sharex=True)
    descriptions = []
    for axes, (table, metric) in zip(grid, panels, strict=True):
        unit = METRICS[metric]
        drawn = _draw_lines(axes, at, table, metric)
        axes.set_title(table.title)
        axes.set_ylabel(unit.unit)
        means = [unit.scale * cell.mean for line in drawn for cell in line.cells if cell.mean is not None]
        if means:  # a bar may be longer than all lines are apart; it leaves the panel
            axes.set_ylim(bottom=max(axes.get_ylim()[0], min(means) - MARGIN * (max(means) - min(means)) - 1))
        descriptions.append(f"{table.title}: {_describe_lines(drawn, at, unit.scale)}")
    for axes in grid[2:]:
        if named := [place for place in at if isinstance(place, str)]:
            set_named_ticks(figure, axes, range(len(at)), named)
        else:
            axes.set_xlabel(STRENGTH)
    add_legend_below(figure, *grid)
    return Drawing(name, figure, f"{caption.removesuffix('.')}.", f"{'. '.join(descriptions)}.")


def rows_in_four_panels(
    name: str,
    rows: Sequence[ResultRow],
    figures: Sequence[Figure],
    order: Iterable[str],
    caption: str,
    names: Sequence[str] = (),
) -> tuple[Drawing, list[Table]] | None:
    """Figure 3, 5 or 6: these figures of the rows by the paper's four measures, one after the other at the same places.

    None where there is no measure with a figure, or the measures have different places. `order`: the labels of the
    lines. `names`: what stands below the places instead of their own names. The tables are those of the panels.
    """
    order = list(order)
    by_panel = [[f for f in figures if (f.metric, f.score) == panel] for panel in FOUR]
    at = places(by_panel[0]) if by_panel[0] else []
    if not at or any(not each or places(each) != at for each in by_panel):
        return None
    titles = [f"{METRICS[metric].title} of {SCORES[score]}" for metric, score in FOUR]
    tables = [compare(rows, each, lines=order, title=title) for each, title in zip(by_panel, titles, strict=True)]
    if not any(_has_figure(line) for table in tables for line in table.lines):
        return None
    panels = [(table, metric) for table, (metric, _) in zip(tables, FOUR, strict=True)]
    return four_panels(name, at if isinstance(at[0], float) else names or at, panels, caption), tables


def _draw_lines(axes: Axes, at: Sequence[str | float], table: Table, metric: str) -> list[Line]:
    """Draw the lines of a table that have figures, and return them."""
    unit = METRICS[metric]
    named = any(isinstance(place, str) for place in at)
    numbers: list[float] = list(range(len(at))) if named else [float(place) for place in at]
    own = [line for line in table.lines if not line.quoted]
    drawn = [(line, style) for line, style in zip(own, _line_styles(own), strict=True) if _has_figure(line)]
    for line, style in drawn:
        axes.errorbar(
            numbers,
            [math.nan if cell.mean is None else unit.scale * cell.mean for cell in line.cells],
            [unit.scale * (cell.deviation or 0.0) for cell in line.cells] if _deviates(line) else None,
            color=style.color,
            linestyle=style.dashes,
            marker=style.marker,
            markerfacecolor=style.fill,
            elinewidth=0.9,
            capsize=2.5,
            label=shorten(line.label),
        )
    if named:
        axes.set_xlim(-0.5, len(at) - 0.5)
        axes.grid(axis="x", visible=False)
    elif 0 < min(numbers) < WEAK:
        axes.set_xscale("log")
        ticks = [number for number in TICKS if min(numbers) <= number <= max(numbers)]
        axes.set_xticks(ticks, [f"{number:g}" for number in ticks])
        axes.minorticks_off()
    if unit.unit == "%":
        axes.set_ylim(top=min(axes.get_ylim()[1], PERCENT_LIMIT))
    return [line for line, _ in drawn]


class LineStyle(NamedTuple):
    """`fill` is the colour inside a marker."""

    color: str
    dashes: str
    marker: str
    fill: str


def _line_styles(own: Sequence[Line]) -> list[LineStyle]:
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
            found.append(LineStyle(color, "--" if mine else "-", marker, color))
        else:
            found.append(LineStyle(color, ":", marker, PAPER))
    return found


def _places_with_figures(table: Table) -> int:
    own = [line.cells for line in table.lines if not line.quoted]
    return sum(any(cell.mean is not None for cell in column) for column in zip(*own, strict=True))


def _has_figure(line: Line) -> bool:
    return any(cell.mean is not None for cell in line.cells)


def _deviates(line: Line) -> bool:
    return any(cell.deviation is not None for cell in line.cells)


def _describe_lines(drawn: Sequence[Line], at: Sequence[str | float], scale: float) -> str:
    return "; ".join(f"{line.label} {_describe(line, at, scale)}" for line in drawn)


def _describe(line: Line, at: Sequence[str | float], scale: float) -> str:
    shown = [(place, cell.mean) for place, cell in zip(at, line.cells, strict=True) if cell.mean is not None]
    return ", ".join(
        f"{scale * mean:.1f} at {place if isinstance(place, str) else f'{place:.3g}'}" for place, mean in shown
    )
