"""Results rows to a table: a line for each method, a column for each figure, mean and deviation over runs.

A method that was trained in several ways (objective, recipe) has a line for each. Figures are marked where they differ
from the reference method's by a t-test over runs; see `dsui.evaluation.statistics`. Published figures are tested by
their printed mean, deviation and number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from dsui.evaluation.paper_tables import PaperRow
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import (
    ALIKE,
    DIFFERENT,
    LEVEL,
    Summary,
    holm,
    mark,
    mean_ranks,
    obstacle,
    summarize,
    t_test,
)
from dsui.report.columns import METRICS, Figure, column, common
from dsui.report.tables import DAGGER, Entry, Line, Table

ALL_CLASSES = "all-classes"
"""The class split of a run that knows all, as rows name it."""
PARTIAL = "Runs that know only some classes count for the unknown ones alone."


class _Method(NamedTuple):
    """A line of the table. `ways`: objective and recipe of own runs, settings of a published ablation."""

    name: str
    ways: tuple[str | None, ...]
    quoted: bool


Summaries = dict[_Method, dict[Figure, Summary]]


def available(rows: Iterable[ResultRow], quoted: Iterable[PaperRow] = ()) -> list[Figure]:
    """Every figure the rows hold, in the order they come in; filter it to choose the columns of `compare`."""
    both: list[ResultRow | PaperRow] = [*rows, *quoted]
    found = dict.fromkeys(_figure(row, metric) for row in both for metric in row.metrics)
    covered = {figure._replace(backbone=None) for figure in found if figure.backbone is not None}
    return [figure for figure in found if figure not in covered]


def compare(
    rows: Iterable[ResultRow],
    figures: Sequence[Figure] | None = None,
    *,
    quoted: Iterable[PaperRow] = (),
    reference: str = "dsui",
    equal_variances: bool = True,
    correct: bool = False,
    title: str | None = None,
) -> Table:
    """All methods in these figures (by default all there are), marked against `reference`, a method or a line's label.

    Of rows with the same run, task, foreign set and score the last counts. Beside runs that know all classes of a data
    set, those that know some count for the unknown classes alone. A published figure without a backbone stands in the
    columns of every backbone. `equal_variances` False: Welch's test. `correct`: Holm over the table.
    """
    rows, quoted = list(rows), list(quoted)
    figures = available(rows, quoted) if figures is None else list(figures)
    if not figures:
        raise ValueError("there are no figures to compare; evaluate a run first.")
    wanted = set(figures)
    shown = [row for row in _latest(rows) if any(_figure(row, metric) in wanted for metric in row.metrics)]
    own = _alike(shown)
    lines = _own(own, wanted) | _published(quoted, figures)
    labels = _labels(lines)
    p_values, test_notes = _tests(lines, labels, reference, equal_variances, correct)
    shared = common(figures)
    return Table(
        title or ": ".join(filter(None, ("Comparison", ", ".join(filter(None, shared))))),
        tuple(column(figure, shared) for figure in figures),
        tuple(
            Line(labels[method], tuple(_cell(cells.get(f), p_values.get((method, f))) for f in figures), method.quoted)
            for method, cells in lines.items()
        ),
        " ".join(
            [
                *_runs_notes(lines),
                *test_notes,
                *_rank_notes({labels[m]: cells for m, cells in lines.items() if not m.quoted}, figures),
                *_row_notes(own, wanted),
                *([PARTIAL] if own != shown else []),
            ]
        ),
    )


def _figure(row: ResultRow | PaperRow, metric: str) -> Figure:
    foreign = None if row.task == "open-set" else row.foreign
    return Figure(row.data, row.backbone, row.task, foreign, row.score, metric)


def _method(row: ResultRow) -> _Method:
    return _Method(row.method, (row.objective, row.recipe), quoted=False)


def _latest(rows: Iterable[ResultRow]) -> list[ResultRow]:
    return list(
        {(_method(r), r.data, r.backbone, r.identity, r.seed, r.task, r.foreign, r.score): r for r in rows}.values()
    )


def _alike(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Without what runs that know some classes of a data set say of their own images, where others know all."""
    whole = {row.data for row in rows if _knows_all(row)}
    return [row for row in rows if row.task == "open-set" or row.data not in whole or _knows_all(row)]


def _knows_all(row: ResultRow) -> bool:
    return row.split is None or row.split.startswith(ALL_CLASSES)


def _own(rows: Iterable[ResultRow], figures: Set[Figure]) -> Summaries:
    values: dict[_Method, dict[Figure, list[float]]] = {}
    for row in rows:
        of_method = values.setdefault(_method(row), {})
        for metric, value in row.metrics.items():
            if (figure := _figure(row, metric)) in figures and math.isfinite(value):
                of_method.setdefault(figure, []).append(value)
    return {method: {f: summarize(runs) for f, runs in cells.items()} for method, cells in values.items()}


def _published(rows: Iterable[PaperRow], figures: Sequence[Figure]) -> Summaries:
    lines: Summaries = {}
    for row in rows:
        for metric, mean in row.metrics.items():
            printed = _figure(row, metric)
            fitting = [f for f in figures if printed in {f, f._replace(backbone=None)}]
            summary = Summary(mean, row.deviation[metric], row.runs)
            for figure in fitting:
                lines.setdefault(_Method(row.method, _settings(row.settings), quoted=True), {})[figure] = summary
    return lines


def _settings(settings: Mapping[str, object] | None) -> tuple[str | None, ...]:
    if settings is None:
        return (None, None, None)
    push = "push" if settings["push"] else "no push"
    return (f"K {settings['components']}", push, str(settings["regularizer"] or "no reg"))


def _labels(lines: Iterable[_Method]) -> dict[_Method, str]:
    """The method, and in brackets the ways in which its lines differ."""
    methods, labels = list(lines), {}
    for method in methods:
        alike = [other.ways for other in methods if (other.name, other.quoted) == (method.name, method.quoted)]
        differing = [len(set(way)) > 1 for way in zip(*alike, strict=True)]
        ways = [way for way, differs in zip(method.ways, differing, strict=True) if differs and way is not None]
        labels[method] = f"{method.name} ({', '.join(ways)})" if ways else method.name
    return labels


def _tests(
    lines: Summaries, labels: Mapping[_Method, str], reference: str, equal_variances: bool, correct: bool
) -> tuple[dict[tuple[_Method, Figure], float], list[str]]:
    """The p-values, and what the note says of them and of the figures that have none."""
    fitting = _fitting(labels, reference)
    if len(fitting) != 1:
        found = f"{len(fitting)} lines are {reference}, the reference" if fitting else f"no line is {reference}"
        return {}, [f"Nothing is tested: {found}."]
    (chosen,) = fitting
    names = {method: f"{label} {DAGGER}" if method.quoted else label for method, label in labels.items()}
    p_values: dict[tuple[_Method, Figure], float] = {}
    reasons: dict[str, dict[str, None]] = {}
    for method, cells in lines.items():
        for figure, summary in cells.items() if method != chosen else ():
            against = lines[chosen].get(figure)
            why = f"{names[chosen]} lacks the figure" if against is None else obstacle(summary, against)
            if against is None or why:
                reasons.setdefault(str(why), {})[names[method]] = None
            else:
                p_values[method, figure] = t_test(summary, against, equal_variances)
    if not p_values:
        return {}, [f"Nothing is tested: {'; '.join(reasons)}."] if reasons else []
    tested = {names[method] for method, _ in p_values}
    test = "Student's" if equal_variances else "Welch's"
    corrected = f", Holm-corrected over {len(p_values)} test{'s' * (len(p_values) > 1)}" if correct else ""
    notes = [
        f"{DIFFERENT} differs from {names[chosen]}, {ALIKE} does not ({test} t-test, p < {LEVEL}{corrected}).",
        *(note for why, untested in reasons.items() for note in _untested(why, untested, tested)),
    ]
    adjusted = holm(list(p_values.values())) if correct else p_values.values()
    return dict(zip(p_values, adjusted, strict=True)), notes


def _untested(why: str, lines: Collection[str], tested: Set[str]) -> list[str]:
    """Which lines lack every test and which lack some; labels may hold commas."""
    parts = {
        "Not tested": [line for line in lines if line not in tested],
        "Tested in some columns only": [line for line in lines if line in tested],
    }
    return [f"{begin} ({why}): {'; '.join(found)}." for begin, found in parts.items() if found]


def _fitting(labels: Mapping[_Method, str], reference: str) -> list[_Method]:
    """The lines that `reference` may mean: own before published, a whole label before a method's name."""
    for quoted in (False, True):
        pool = [method for method in labels if method.quoted is quoted]
        for fits in ([m for m in pool if labels[m] == reference], [m for m in pool if m.name == reference]):
            if fits:
                return fits
    return []


def _runs_notes(lines: Summaries) -> list[str]:
    counts = sorted({summary.runs for cells in lines.values() for summary in cells.values()})
    if not counts or counts == [1]:
        return ["One run each, so without deviation."] if counts else []
    return [f"Mean ± deviation over {counts[0] if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'} runs."]


def _rank_notes(lines: Mapping[str, Mapping[Figure, Summary]], figures: Sequence[Figure]) -> list[str]:
    """The lines by their mean rank, from three lines and two columns on."""
    directions = [METRICS[figure.metric].higher_is_better if figure.metric in METRICS else None for figure in figures]
    ranked = [
        (figure, higher)
        for figure, higher in zip(figures, directions, strict=True)
        if higher is not None and all(figure in cells for cells in lines.values())
    ]
    if len(lines) < 3 or len(ranked) < 2:
        return []
    means = {label: [cells[figure].mean for figure, _ in ranked] for label, cells in lines.items()}
    ranks = sorted(mean_ranks(means, [higher for _, higher in ranked]).items(), key=lambda each: each[1])
    listed = "; ".join(f"{rank:.1f} {label}" for label, rank in ranks)
    return [f"Mean rank over the {len(ranked)} columns that all of these have: {listed}."]


def _row_notes(rows: Sequence[ResultRow], figures: Set[Figure]) -> list[str]:
    """What a reader of the means must know of the own runs behind them."""
    notes = []
    missing = sum(
        not math.isfinite(value) for row in rows for name, value in row.metrics.items() if _figure(row, name) in figures
    )
    if missing:
        notes.append(f"{missing} figures of single runs do not exist and are left out.")
    protocols: dict[tuple[str, str, str | float | None], set[str | None]] = {}
    images: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    asked: dict[_Method, set[str]] = {}
    runs: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        protocols.setdefault((row.data, row.task, row.foreign), set()).add(row.protocol)
        runs.setdefault((_method(row), row.data, row.backbone, row.seed, row.split), set()).add(row.identity)
        if row.task == "open-set":
            asked.setdefault(_method(row), set()).add(_split(row))
        else:
            ranked = "accuracy" not in row.metrics  # where nothing is ranked, nothing is counted
            images.setdefault((row.data, row.task, row.foreign, ranked), set()).add((_split(row), *_counts(row)))
    if asked:
        notes.append(f"Known classes in open-set tests: {'; '.join(sorted(set[str]().union(*asked.values())))}.")
    if len(set(map(frozenset, asked.values()))) > 1:
        notes.append("Not all methods were asked about the same ones; compare those that were.")
    if any(len(mixed) > 1 for mixed in protocols.values()):
        notes.append("Rows of different protocols stand in one column; compare them apart.")
    if mixed_tasks := sorted({str(task) for (_, task, *_), mixed in images.items() if len(mixed) > 1}):
        notes.append(f"Figures of different images stand in one column ({', '.join(mixed_tasks)}); compare them apart.")
    if any(len(same) > 1 for same in runs.values()):
        notes.append("Some runs of a method share their seed, so they may not be independent.")
    return notes


def _split(row: ResultRow) -> str:
    return (row.split or ALL_CLASSES).partition(":")[0]


def _counts(row: ResultRow) -> tuple[int | None, ...]:
    """How many images a figure is of; errors differ from run to run, and only all images are counted."""
    if row.task == "accuracy" or row.n_positive is None or row.n_negative is None:
        return (None,)
    return (row.n_positive + row.n_negative,) if row.task == "misclassification" else (row.n_positive, row.n_negative)


def _cell(summary: Summary | None, p: float | None) -> Entry:
    if summary is None:
        return Entry()
    return Entry(summary.mean, summary.deviation, summary.runs, p, None if p is None else mark(p))
