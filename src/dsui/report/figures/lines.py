"""Figures 3, 5 and 6: methods as lines over data sets, pairs of sets or strengths of attack; DS-UI dashed.

A point is the mean over the runs of a method and its bar their deviation, from the same comparison as the tables. All
methods share the same x: moved sideways, a steep line would seem to cross one that is lower everywhere. A line has a
gap where its method has no figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsui.evaluation.results import ResultRow
from dsui.report.columns import SCORES, UNKNOWN, Figure
from dsui.report.comparison import available, compare
from dsui.report.figures.canvas import (
    INK,
    Drawing,
    add_legend_below,
    new_panel,
    series_styles,
    set_named_ticks,
    shorten,
    styled,
)
from dsui.report.metric_formats import METRICS
from dsui.report.tables import Line, Table

SHOWN = [
    ("auroc", "max_probability"),
    ("auroc", "entropy"),
    ("aupr", "max_probability"),
    ("aupr", "entropy"),
    ("accuracy", "prediction"),
]
"""The four panels of the paper, and for attacks how many images are still classified correctly."""
WEAK, TICKS = 0.1, (0.01, 0.03, 0.1, 0.3, 1)
"""With attacks weaker than this the x-axis is logarithmic; on a linear one their points would overlap."""
PERCENT_LIMIT = 101.0
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
    unit = METRICS[metric]
    named = [place for place in at if isinstance(place, str)]
    numbers: list[float] = list(range(len(at))) if named else [float(place) for place in at]
    own = [line for line in table.lines if not line.quoted]
    drawn = [(line, style) for line, style in zip(own, _line_styles(own), strict=True) if _has_figure(line)]
    for line, (color, dashes, marker) in drawn:
        axes.errorbar(
            numbers,
            [math.nan if cell.mean is None else unit.scale * cell.mean for cell in line.cells],
            [unit.scale * (cell.deviation or 0.0) for cell in line.cells] if _deviates(line) else None,
            color=color,
            linestyle=dashes,
            marker=marker,
            elinewidth=0.9,
            capsize=2.5,
            label=shorten(line.label),
        )
    if named:
        set_named_ticks(figure, axes, numbers, named)
        axes.set_xlim(-0.5, len(named) - 0.5)
        axes.grid(axis="x", visible=False)
    else:
        axes.set_xlabel("strength ε of the attack, in pixel units of 0 to 1")
        if 0 < min(numbers) < WEAK:
            axes.set_xscale("log")
            ticks = [number for number in TICKS if min(numbers) <= number <= max(numbers)]
            axes.set_xticks(ticks, [f"{number:g}" for number in ticks])
            axes.minorticks_off()
    if unit.unit == "%":
        axes.set_ylim(top=min(axes.get_ylim()[1], PERCENT_LIMIT))
    axes.set_ylabel(f"{unit.title} ({unit.unit}), {'higher' if unit.higher_is_better else 'lower'} is better")
    add_legend_below(figure, axes)
    description = "; ".join(f"{line.label} {_describe(line, at, unit.scale)}" for line, _ in drawn)
    return Drawing(name, figure, f"{table.title.removesuffix('.')}.", f"{description}.")


def _line_styles(own: Sequence[Line]) -> list[tuple[str, str, str]]:
    """Colour, dashes and marker of each line. DS-UI is dashed and all others are solid, as in the paper. A single line
    of DS-UI is drawn in ink and leaves the colours to the others."""
    ours = [line.label.split(" ")[0] == "dsui" for line in own]
    alone, styles = sum(ours) == 1, series_styles()
    looks = [(INK, "X") if mine and alone else next(styles)[::2] for mine in ours]
    return [(color, "--" if mine else "-", marker) for mine, (color, marker) in zip(ours, looks, strict=True)]


def _places_with_figures(table: Table) -> int:
    own = [line.cells for line in table.lines if not line.quoted]
    return sum(any(cell.mean is not None for cell in column) for column in zip(*own, strict=True))


def _has_figure(line: Line) -> bool:
    return any(cell.mean is not None for cell in line.cells)


def _deviates(line: Line) -> bool:
    return any(cell.deviation is not None for cell in line.cells)


def _describe(line: Line, at: Sequence[str | float], scale: float) -> str:
    shown = [(place, cell.mean) for place, cell in zip(at, line.cells, strict=True) if cell.mean is not None]
    return ", ".join(
        f"{scale * mean:.1f} at {place if isinstance(place, str) else f'{place:.3g}'}" for place, mean in shown
    )
