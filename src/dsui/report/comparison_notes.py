"""The sentences below a comparison: how many runs, mean ranks, and what a reader must know of the rows behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import Summary, mean_ranks
from dsui.report.columns import Figure, figure_of
from dsui.report.comparison_lines import ALL_CLASSES, LineKey, Summaries, line_key
from dsui.report.metric_formats import METRICS

PARTIAL = "Runs that know only some classes count for the unknown ones alone."


def run_notes(lines: Summaries) -> list[str]:
    counts = sorted({summary.runs for cells in lines.values() for summary in cells.values()})
    if not counts or counts == [1]:
        return ["One run each, so without deviation."] if counts else []
    return [f"Mean ± deviation over {counts[0] if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'} runs."]


def rank_notes(lines: Mapping[str, Mapping[Figure, Summary]], figures: Sequence[Figure]) -> list[str]:
    """The lines, by label, in order of their mean rank; nothing below three lines or two columns."""
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


def row_notes(rows: Sequence[ResultRow], figures: Set[Figure]) -> list[str]:
    """What does not show in the means: missing values, class splits, mixed protocols or images, shared seeds."""
    notes = []
    missing = sum(
        not math.isfinite(value)
        for row in rows
        for name, value in row.metrics.items()
        if figure_of(row, name) in figures
    )
    if missing:
        notes.append(f"{missing} figures of single runs do not exist and are left out.")
    protocols: dict[tuple[str, str, str | float | None], set[str | None]] = {}
    images: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    class_splits: dict[LineKey, set[str]] = {}
    runs: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        protocols.setdefault((row.data, row.task, row.foreign), set()).add(row.protocol)
        runs.setdefault((line_key(row), row.data, row.backbone, row.seed, row.split), set()).add(row.identity)
        if row.task == "open-set":
            class_splits.setdefault(line_key(row), set()).add(_split_name(row))
        else:
            ranked = "accuracy" not in row.metrics  # only rankings count their images
            images.setdefault((row.data, row.task, row.foreign, ranked), set()).add((_split_name(row), *_counts(row)))
    if class_splits:
        notes.append(f"Known classes in open-set tests: {'; '.join(sorted(set[str]().union(*class_splits.values())))}.")
    if len(set(map(frozenset, class_splits.values()))) > 1:
        notes.append("Not all methods know the same classes; compare only those that do.")
    if any(len(mixed) > 1 for mixed in protocols.values()):
        notes.append("Rows of different protocols stand in one column; compare them separately.")
    if mixed_tasks := sorted({str(task) for (_, task, *_), mixed in images.items() if len(mixed) > 1}):
        notes.append(
            f"Figures of different images stand in one column ({', '.join(mixed_tasks)}); compare them separately."
        )
    if any(len(same) > 1 for same in runs.values()):
        notes.append("Some runs of a method share their seed, so they may not be independent.")
    return notes


def _split_name(row: ResultRow) -> str:
    return (row.split or ALL_CLASSES).partition(":")[0]


def _counts(row: ResultRow) -> tuple[int | None, ...]:
    """How many images a figure is of; errors differ from run to run, so only their sum with the others counts."""
    if row.task == "accuracy" or row.n_positive is None or row.n_negative is None:
        return (None,)
    return (row.n_positive + row.n_negative,) if row.task == "misclassification" else (row.n_positive, row.n_negative)
