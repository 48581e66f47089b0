"""One run's results as a table: a line for each score, a column for each task and metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dsui.evaluation.results import ResultRow
from dsui.report.columns import SCORES
from dsui.report.metric_formats import METRICS
from dsui.report.significance import STAND_IN
from dsui.report.tables import Column, Entry, Line, Table

SHOWN = {
    "misclassification": ("auroc", "aupr", "aurc"),
    "ood": ("auroc", "fpr95"),
    "open-set": ("auroc", "aupr"),
    "noise": ("auroc", "fpr95"),
    "fgsm": ("auroc",),
}


def run_title(row: ResultRow) -> str:
    """Which run a row is of, and how it was trained."""
    return f"{row.run}: {row.method} on {row.data}, {row.backbone}, recipe {row.recipe}, seed {row.seed}"


def run_table(rows: Sequence[ResultRow]) -> Table:
    """A table of the rows of one run, the recommended score first; accuracies go to the note."""
    rankings = [row for row in rows if "accuracy" not in row.metrics]
    accuracies = {(row.task, row.foreign, row.score): row for row in rows if "accuracy" in row.metrics}
    columns = dict.fromkeys((row.task, row.foreign, metric) for row in rankings for metric in SHOWN.get(row.task, ()))
    figures = {(row.score, row.task, row.foreign): row.metrics for row in rankings}
    names = sorted(dict.fromkeys(row.score for row in rankings), key=lambda name: name != STAND_IN)
    lines = tuple(
        Line(
            SCORES.get(name or "", name or ""),
            tuple(Entry(figures.get((name, task, foreign), {}).get(metric)) for task, foreign, metric in columns),
        )
        for name in names
    )
    note = "; ".join(
        [
            *(f"accuracy of the {row.score} {_percent(row)}" for row in accuracies.values() if row.task == "accuracy"),
            *_under_attack(accuracies.values()),
            *_counts(rankings),
            *([f"{STAND_IN} is the recommended score"] if STAND_IN in names else []),
        ]
    )
    return Table(
        run_title(rows[0]),
        tuple(_column(*column) for column in columns),
        lines,
        f"{note}." if note else "",
        corner="score",
    )


def _percent(row: ResultRow) -> str:
    return f"{100 * row.metrics['accuracy']:.2f} %"


def _under_attack(accuracies: Iterable[ResultRow]) -> list[str]:
    """How many attacked images are still classified correctly; those the attack did not harm are hard to detect."""
    each = [f"{_percent(row)} at ε {row.foreign:.3g}" for row in accuracies if row.task == "fgsm"]
    return [f"accuracy under attack {', '.join(each)}"] if each else []


def _counts(rows: Sequence[ResultRow]) -> list[str]:
    """How many images are behind the figures."""
    counts = []
    kinds = {(row.task, row.foreign): (row.n_positive, row.n_negative) for row in rows if row.task in SHOWN}
    for (task, foreign), (positive, negative) in kinds.items():
        if positive is None or negative is None or task == "fgsm":
            continue
        if task == "misclassification":
            counts.append(f"{positive:,} error{'s' * (positive != 1)} among {positive + negative:,} images")
        else:
            counts.append(f"{positive:,} images of {'unknown classes' if foreign == 'unknown' else foreign}")
    return counts


def _column(task: str, foreign: str | float | None, metric: str) -> Column:
    against = task if foreign in (None, task, "unknown") else foreign
    return METRICS[metric].column(against if isinstance(against, str) else f"ε {against:.3g}")
