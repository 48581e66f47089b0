"""Figures 3, 5 and 6: methods over data sets, pairs of sets or strengths of attack.

A point is the mean over the runs of a method and its bar their deviation, from the same comparison as the tables. Only
strengths have an order, so only they are joined by lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dsui.evaluation.results import ResultRow
from dsui.report.columns import SCORES, UNKNOWN, Figure
from dsui.report.comparison import available, compare
from dsui.report.figures.canvas import HEIGHT, Drawing, add_legend_below, new_panels, styled
from dsui.report.figures.dots import dot_rows, dots_height, draw_dots
from dsui.report.figures.lines import STRENGTH, draw_lines
from dsui.report.figures.method_marks import has_figure, marked_lines
from dsui.report.metric_formats import METRICS
from dsui.report.tables import Line, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

SHOWN = [
    ("auroc", "max_probability"),
    ("auroc", "entropy"),
    ("aupr", "max_probability"),
    ("aupr", "entropy"),
    ("accuracy", "prediction"),
]
"""The four panels of the paper, and for attacks how many images are still classified correctly."""
FOUR = SHOWN[:4]
FEWEST_PLACES = 2
"""A single place makes no figure of its own; it is in the tables."""


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
                drawn.append((method_panel("-".join(parts), places(wanted), table, metric), table))
    return drawn


@styled
def method_panel(name: str, at: Sequence[str | float], table: Table, metric: str) -> Drawing:
    """All lines of a table, with its metric along one axis; `at` are the places of its columns, names or strengths."""
    unit = METRICS[metric]
    label = f"{unit.title} ({unit.unit}), {'higher' if unit.higher_is_better else 'lower'} is better"
    figure, (axes,) = _draw_panels([(table, metric)], at, rows=1, columns=1)
    axes.set(**{"xlabel" if _named(at) else "ylabel": label})
    add_legend_below(figure, axes)
    caption = f"{table.title.removesuffix('.')}."
    return Drawing(name, figure, caption, f"{_describe_lines(table, at, unit.scale)}.", _reading(at))


@styled
def four_panels(name: str, at: Sequence[str | float], panels: Sequence[tuple[Table, str]], caption: str) -> Drawing:
    """The four panels of one of the paper's figures, with one legend. Each is a table and the metric of its figures,
    its title stands above it, and `at` are the places of the columns of all tables."""
    figure, grid = _draw_panels(panels, at, rows=2, columns=2)
    descriptions = []
    for axes, (table, metric) in zip(grid, panels, strict=True):
        unit = METRICS[metric]
        axes.set_title(table.title)
        axes.set(**{"xlabel" if _named(at) else "ylabel": unit.unit})
        descriptions.append(f"{table.title}: {_describe_lines(table, at, unit.scale)}")
    add_legend_below(figure, *grid)
    description = f"{'. '.join(descriptions)}."
    return Drawing(name, figure, f"{caption.removesuffix('.')}.", description, _reading(at))


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
    if not any(has_figure(line) for table in tables for line in table.lines):
        return None
    panels = [(table, metric) for table, (metric, _) in zip(tables, FOUR, strict=True)]
    return four_panels(name, at if isinstance(at[0], float) else names or at, panels, caption), tables


def _draw_panels(
    panels: Sequence[tuple[Table, str]], at: Sequence[str | float], rows: int, columns: int
) -> tuple[MatplotlibFigure, list[Axes]]:
    """Dots where the places have names, with the names beside the left panels; lines over strengths of attack."""
    names = [place for place in at if isinstance(place, str)]
    found = dot_rows([table for table, _ in panels])
    figure, grid = new_panels(
        rows, columns, dots_height(found) if names else HEIGHT, sharex=not names, sharey=bool(names)
    )
    for axes, (table, metric) in zip(grid, panels, strict=True):
        if names:
            draw_dots(axes, names, found, table, METRICS[metric])
        else:
            draw_lines(axes, [float(place) for place in at], table, METRICS[metric])
    for axes in () if names else grid[-columns:]:
        axes.set_xlabel(STRENGTH)
    return figure, grid


def _named(at: Sequence[str | float]) -> bool:
    return isinstance(at[0], str)


def _reading(at: Sequence[str | float]) -> str:
    bars = "the mean over a method's runs (seeds), its bar their standard deviation to each side"
    if _named(at):
        return f"Each dot is {bars}: further right is better, and a difference no larger than the bars may be chance."
    return f"Each point is {bars}: a higher line is better, and attacks are stronger to the right."


def _places_with_figures(table: Table) -> int:
    own = [line.cells for line in table.lines if not line.quoted]
    return sum(any(cell.mean is not None for cell in column) for column in zip(*own, strict=True))


def _describe_lines(table: Table, at: Sequence[str | float], scale: float) -> str:
    return "; ".join(f"{line.label} {_describe(line, at, scale)}" for line, _ in marked_lines(table))


def _describe(line: Line, at: Sequence[str | float], scale: float) -> str:
    shown = [(place, cell.mean) for place, cell in zip(at, line.cells, strict=True) if cell.mean is not None]
    return ", ".join(
        f"{scale * mean:.1f} at {place if isinstance(place, str) else f'{place:.3g}'}" for place, mean in shown
    )
