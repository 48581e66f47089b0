"""Does the head help on frozen features of another network? Eight classes of fifty photographs, twenty times.

    python -m studies.transfer FOLDER results/transfer.jsonl [FIRST LAST]

FOLDER holds test.safetensors and svhn.safetensors, written by `dsui embed` as docs/log/transfer.md says. Each draw of
`studies.transfer_draws` is learned by every method with the settings that `studies.transfer_selection` chose, and
scored on the other photographs of its classes, of eight other classes, and of SVHN.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dsui.data.feature_file import read_feature_file
from dsui.evaluation.results import ResultRow, append, read
from dsui.evaluation.statistics import LEVEL
from studies.transfer_draws import draws_for_test, shares
from studies.transfer_estimators import ESTIMATORS, run_estimator
from studies.transfer_runs import run, task_of

CHOSEN: dict[str, dict[str, object]] = {"dsui": {"components": 1, "scale": 8.0}, "msp": {"weight_decay": 0.5}}
"""By `studies.transfer_selection`."""
DETECTORS = ("knn", "mahalanobis", "relative-mahalanobis", "vim", "gda", "em-mixture")
"""Fitted to the features that softmax was trained on."""
Column = tuple[str, str | None, str]
"""Task, foreign set and score."""
COLUMNS: dict[str, Column] = {
    "accuracy": ("accuracy", None, "prediction"),
    "errors": ("misclassification", None, "uncertainty"),
    "errors, Max.P.": ("misclassification", None, "max_probability"),
    "foreign": ("ood", "other classes", "foreignness"),
    "foreign, uncertainty": ("ood", "other classes", "uncertainty"),
    "SVHN": ("ood", "svhn", "foreignness"),
}
LABELS = {"dsui": "DS-UI", "msp": "softmax"}
Figures = dict[str, dict[Column, dict[int, float]]]
"""By method, column and draw, in %."""


def read_figures(path: Path) -> Figures:
    found: Figures = {}
    rows, problems = read([path])
    if problems:
        raise ValueError(problems[0])
    for row in rows:
        foreign = None if row.foreign is None else str(row.foreign)
        value = row.metrics["accuracy" if row.task == "accuracy" else "auroc"]
        column = row.task, foreign, str(row.score)
        found.setdefault(row.method, {}).setdefault(column, {})[row.seed] = 100 * value
    return found


def table(path: Path) -> str:
    """The Markdown table of all methods, and below it DS-UI's paired differences."""
    found = read_figures(path)
    lines = [f"| method | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * len(COLUMNS)]
    for method, figures in found.items():
        cells = [_mean(figures[column].values()) if column in figures else "" for column in COLUMNS.values()]
        lines.append(f"| {LABELS.get(method, method)} | {' | '.join(cells)} |")
    for rival in (name for name in found if name != "dsui"):
        cells = [paired(found["dsui"][column], found[rival][column]) for column in COLUMNS.values()]
        lines.append(f"| DS-UI minus {LABELS.get(rival, rival)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def detector_table(path: Path) -> str:
    """The Markdown table of every score of softmax and of DS-UI that asks whether an image is foreign."""
    found = read_figures(path)
    lines = ["| score | method | other classes | SVHN |", "|---|---|---:|---:|"]
    scored = [(str(score), method) for method in LABELS for _, foreign, score in found[method] if foreign == "svhn"]

    def values(score: str, method: str, foreign: str) -> list[float]:
        return list(found[method]["ood", foreign, score].values())

    for score, method in sorted(scored, key=lambda line: -statistics.mean(values(line[0], line[1], "other classes"))):
        cells = [_mean(values(score, method, foreign)) for foreign in ("other classes", "svhn")]
        lines.append(f"| {score} | {LABELS[method]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{statistics.mean(listed):.1f} ± {statistics.stdev(listed):.1f}"


def paired(first: dict[int, float], second: dict[int, float]) -> str:
    """The mean difference over the draws with the 95 % interval of Student's t."""
    from scipy import stats

    differences = [first[draw] - second[draw] for draw in sorted(first)]
    mean, n = statistics.mean(differences), len(differences)
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * statistics.stdev(differences) / math.sqrt(n)
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def rows_of_draw(folder: Path, number: int) -> list[ResultRow]:
    share, classes = read_feature_file(folder / "test.safetensors"), shares()[2]
    with tempfile.TemporaryDirectory() as files:
        task = task_of(draws_for_test()[number], share, classes, Path(files), {"svhn": folder / "svhn.safetensors"})
        rows = run(task, "dsui", CHOSEN["dsui"])
        rows += run(task, "msp", CHOSEN["msp"], DETECTORS)
        for name in ESTIMATORS:
            rows += run_estimator(task, name)
    return rows


def main(folder: Path, out: Path, first: int, last: int) -> None:
    """Append the rows of the draws `first` to `last` - 1."""
    for number in range(first, last):
        append(out, rows_of_draw(folder, number))
        print(f"draw {number} is scored.", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(Path(arguments[0]), Path(arguments[1]), *map(int, arguments[2:4] or (0, len(draws_for_test()))))
