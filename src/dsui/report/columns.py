"""What a column of a comparison shows, and how its header names it: titles, units and directions of metrics, scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dsui.evaluation.paper_tables import PaperRow
from dsui.evaluation.results import ResultRow
from dsui.report.metric_formats import format_of
from dsui.report.tables import Column
from dsui.score_table import LABELS


class Figure(NamedTuple):
    """What one column shows. `foreign` is None for an open-set test, whose unknown classes differ from run to run."""

    data: str
    backbone: str | None
    task: str
    foreign: str | float | None
    score: str | None
    metric: str


SCORES = LABELS
"""What readers see instead of the names of scores."""
UNKNOWN = "unknown classes"
"""The name of the images that an open-set test has to find."""


def figure_of(row: ResultRow | PaperRow, metric: str) -> Figure:
    """The column in which a row's value of this metric stands."""
    foreign = None if row.task == "open-set" else row.foreign
    return Figure(row.data, row.backbone, row.task, foreign, row.score, metric)


def block_figures(
    task: str,
    sets: Iterable[tuple[str, str | None, str | float | None]],
    metrics: Sequence[str],
    scores: Sequence[str],
) -> list[Figure]:
    """The columns of one task: by (data, backbone, foreign) of `sets`, then by metric, then by score."""
    return [
        Figure(data, backbone, task, foreign, score, metric)
        for data, backbone, foreign in sets
        for metric in metrics
        for score in scores
    ]


def shared_parts(figures: Sequence[Figure]) -> tuple[str | None, ...]:
    """The parts that all columns share and the title names; None for a part that differs."""
    return tuple(
        values[0] if len(set(values)) == 1 else None for values in zip(*map(_header_parts, figures), strict=True)
    )


def figure_column(figure: Figure, shared: tuple[str | None, ...]) -> Column:
    """The column of a figure; its header leaves out the parts that are `shared`."""
    metric = format_of(figure.metric)
    own = (part for part, of_all in zip(_header_parts(figure), shared, strict=True) if of_all is None)
    return metric.column(*("" if part == metric.title else part for part in own))


def _header_parts(figure: Figure) -> tuple[str, ...]:
    """Data, backbone, task, foreign set and score, as a header prints them."""
    foreign = figure.foreign
    if foreign is None or foreign == figure.task:
        shown = ""
    else:
        shown = f"→ {foreign}" if isinstance(foreign, str) else f"ε {foreign:.3g}"
    score = SCORES.get(figure.score, figure.score) if figure.score else ""
    return (figure.data, figure.backbone or "", figure.task, shown, score)
