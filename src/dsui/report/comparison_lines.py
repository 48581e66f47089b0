"""The lines of a comparison: which results rows belong to one line, and their means and deviations over runs.

A method that was trained in several ways (objective, recipe) has a line for each. Published figures have lines of their
own, with the printed mean, deviation and number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TypeVar

from dsui.evaluation.paper_tables import PaperRow
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import Summary, summarize
from dsui.report.columns import Figure, figure_of

ALL_CLASSES = "all-classes"
"""How rows name the class split of a run that knows all classes."""
MIXTURES = ", mixtures"
"""How the label of a line ends that shows a method by its mixtures, beside its line by the classifier."""
BY_MIXTURES = {
    "density": "prediction",
    "density_max_probability": "max_probability",
    "density_entropy": "entropy",
}
"""The scores of the mixtures' posterior, and the same measure of the classifier's."""
AnyRow = TypeVar("AnyRow", ResultRow, PaperRow)


class LineKey(NamedTuple):
    """What makes a line. `variant`: objective and recipe of own runs, or the settings of a published ablation."""

    method: str
    variant: tuple[str | None, ...]
    quoted: bool


Summaries = dict[LineKey, dict[Figure, Summary]]


def line_key(row: ResultRow) -> LineKey:
    return LineKey(row.method, (row.objective, row.recipe), quoted=False)


def relabel(row: ResultRow, label: str) -> ResultRow:
    """The row on the line `label`, whatever its objective and recipe are."""
    return replace(row, method=label, objective=None, recipe="")


def with_prediction_stream(row: AnyRow) -> AnyRow:
    """Accuracy without a score is that of the prediction: the paper, and rows from when there was one stream."""
    return replace(row, score="prediction") if row.task == "accuracy" and row.score is None else row


def with_mixtures(rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
    """Also each row of the mixtures' posterior as a row of the same measure, on a line of its own: "dsui, mixtures"."""
    for row in rows:
        yield row
        if (measure := BY_MIXTURES.get(row.score or "")) is not None:
            yield replace(row, method=f"{row.method}{MIXTURES}", score=measure)


def latest_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Of rows with the same run, task, foreign set and score only the last."""
    return list(
        {(line_key(r), r.data, r.backbone, r.identity, r.seed, r.task, r.foreign, r.score): r for r in rows}.values()
    )


def without_partial_runs(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Where some runs know all classes of a data set, runs that know fewer keep their open-set rows only."""
    whole = {row.data for row in rows if _knows_all(row)}
    return [row for row in rows if row.task == "open-set" or row.data not in whole or _knows_all(row)]


def own_summaries(rows: Iterable[ResultRow], figures: Set[Figure]) -> Summaries:
    """Over the runs of each line; values that are not finite do not count."""
    values: dict[LineKey, dict[Figure, list[float]]] = {}
    for row in rows:
        of_line = values.setdefault(line_key(row), {})
        for metric, value in row.metrics.items():
            if (figure := figure_of(row, metric)) in figures and math.isfinite(value):
                of_line.setdefault(figure, []).append(value)
    return {line: {f: summarize(runs) for f, runs in cells.items()} for line, cells in values.items()}


def published_summaries(rows: Iterable[PaperRow], figures: Sequence[Figure]) -> Summaries:
    """As printed; a published figure without a backbone counts for every backbone."""
    lines: Summaries = {}
    for row in rows:
        for metric, mean in row.metrics.items():
            printed = figure_of(row, metric)
            summary = Summary(mean, row.deviation[metric], row.runs)
            for figure in (f for f in figures if printed in {f, f._replace(backbone=None)}):
                lines.setdefault(LineKey(row.method, _variant(row.settings), quoted=True), {})[figure] = summary
    return lines


def line_labels(lines: Iterable[LineKey]) -> dict[LineKey, str]:
    """The method, and in brackets what tells its lines apart."""
    keys, labels = list(lines), {}
    for key in keys:
        shown = variant_parts(key, keys)
        labels[key] = f"{key.method} ({', '.join(shown)})" if shown else key.method
    return labels


def variant_parts(key: LineKey, lines: Sequence[LineKey]) -> list[str]:
    """The parts of a line's variant in which the lines of its method differ."""
    variants = [other.variant for other in lines if (other.method, other.quoted) == (key.method, key.quoted)]
    differing = [len(set(values)) > 1 for values in zip(*variants, strict=True)]
    return [part for part, differs in zip(key.variant, differing, strict=True) if differs and part is not None]


def _knows_all(row: ResultRow) -> bool:
    return row.split is None or row.split.startswith(ALL_CLASSES)


def _variant(settings: Mapping[str, object] | None) -> tuple[str | None, ...]:
    if settings is None:
        return (None, None, None)
    push = "push" if settings["push"] else "no push"
    return (f"K {settings['components']}", push, str(settings["regularizer"] or "no reg"))
