"""Results rows to a table: a line for each method, a column for each figure, mean and deviation over runs.

The one builder behind `dsui compare`, the page, the studies and the documents. `comparison_lines` says which rows make
a line, `significance` marks the figures that differ from the reference, `comparison_notes` writes the sentences below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dsui.evaluation.paper_tables import PaperRow
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import Summary, mark
from dsui.report.columns import Figure, figure_column, figure_of, shared_parts
from dsui.report.comparison_lines import (
    LineKey,
    latest_rows,
    line_labels,
    own_summaries,
    published_summaries,
    without_partial_runs,
)
from dsui.report.comparison_notes import PARTIAL, rank_notes, row_notes, run_notes
from dsui.report.significance import significance_tests, stand_in
from dsui.report.tables import Entry, Line, Table


def available(rows: Iterable[ResultRow], quoted: Iterable[PaperRow] = ()) -> list[Figure]:
    """Every figure the rows hold, in their order; filter it to choose the columns of `compare`."""
    both: list[ResultRow | PaperRow] = [*rows, *quoted]
    found = dict.fromkeys(figure_of(row, metric) for row in both for metric in row.metrics)
    covered = {figure._replace(backbone=None) for figure in found if figure.backbone is not None}
    return [figure for figure in found if figure not in covered]


def compare(
    rows: Iterable[ResultRow],
    figures: Sequence[Figure] | None = None,
    *,
    lines: Iterable[str] = (),
    quoted: Iterable[PaperRow] = (),
    reference: str = "dsui",
    equal_variances: bool = True,
    correct: bool = False,
    title: str | None = None,
    labelled: Callable[[Iterable[LineKey]], dict[LineKey, str]] = line_labels,
) -> Table:
    """All methods in these figures (by default all there are), marked against `reference`, a method or a line's label.

    Of rows with the same run, task, foreign set and score the last counts. Beside runs that know all classes of a data
    set, those that know some count for the unknown classes alone. A published figure without a backbone stands in the
    columns of every backbone. `lines`: labels of own lines that come first, in this order; one without figures is a
    line of "-". `equal_variances` False: Welch's test. `correct`: Holm over the table. `labelled` names the lines.
    """
    rows, quoted = list(rows), list(quoted)
    figures = available(rows, quoted) if figures is None else list(figures)
    if not figures:
        raise ValueError("there are no figures to compare; evaluate a run first.")
    wanted = set(figures)
    latest = latest_rows(rows)
    shown = [row for row in latest if any(figure_of(row, metric) in wanted for metric in row.metrics)]
    own = without_partial_runs(shown)
    stand_ins = own_summaries(without_partial_runs(latest), {stand_in(figure) for figure in wanted})
    summaries = own_summaries(own, wanted) | published_summaries(quoted, figures)
    labels = labelled(summaries)
    p_values, test_notes = significance_tests(reference, summaries, stand_ins, labels, equal_variances, correct)
    shared = shared_parts(figures)
    found = [
        Line(labels[key], tuple(_entry(cells.get(f), p_values.get((key, f))) for f in figures), key.quoted)
        for key, cells in summaries.items()
    ]
    return Table(
        title or ": ".join(filter(None, ("Comparison", ", ".join(filter(None, shared))))),
        tuple(figure_column(figure, shared) for figure in figures),
        _arrange(found, lines, len(figures)),
        " ".join(
            [
                *run_notes(summaries),
                *test_notes,
                *rank_notes({labels[key]: cells for key, cells in summaries.items() if not key.quoted}, figures),
                *row_notes(own, wanted),
                *([PARTIAL] if own != shown else []),
            ]
        ),
    )


def _arrange(found: Sequence[Line], order: Iterable[str], columns: int) -> tuple[Line, ...]:
    """Own lines in this order, then all other own lines, then the quoted ones."""
    own: dict[str, list[Line]] = {label: [] for label in order}
    for line in found:
        if not line.quoted:
            own.setdefault(line.label, []).append(line)
    empty = tuple(Entry() for _ in range(columns))
    arranged = [line for label, lines in own.items() for line in lines or [Line(label, empty)]]
    return (*arranged, *(line for line in found if line.quoted))


def _entry(summary: Summary | None, p: float | None) -> Entry:
    if summary is None:
        return Entry()
    return Entry(summary.mean, summary.deviation, summary.runs, p, None if p is None else mark(p))
