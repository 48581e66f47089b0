"""Settings of DS-UI and of softmax for the transfer study, chosen on classes that the test does not use.

    python -m studies.transfer_selection FEATURES results/transfer-selection.jsonl [METHOD ..]

FEATURES is the file of the share "selection". Both methods have the same number of trials; the criterion is the mean of
the errors AUROC and the foreign AUROC over the draws, each by the score that is recommended for the question.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsui.data.feature_file import read_feature_file
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import summarize
from studies.transfer_draws import draws_for_selection, shares
from studies.transfer_runs import run, task_of

TRIALS: dict[str, list[dict[str, object]]] = {
    "msp": [
        {"weight_decay": 5e-4},
        {"weight_decay": 0.05},
        {"weight_decay": 0.5},
        {"epochs": 10, "cycle": 10, "weight_decay": 5e-4},
        {"epochs": 10, "cycle": 10, "weight_decay": 0.5},
        {"peak_rate": 1e-3, "weight_decay": 0.5},
    ],
    "dsui": [
        {"components": 2},
        {"components": 1},
        {"components": 1, "epochs": 10, "cycle": 10},
        {"components": 1, "scale": 16.0},
        {"components": 1, "epochs": 10, "cycle": 10, "scale": 16.0},
        {"components": 1, "scale": 8.0},
    ],
}
USED = 4
"""Of the draws; the others were left out for want of time."""
COLUMNS = ("accuracy", "errors", "foreign")


def figures(rows: list[ResultRow]) -> dict[str, float]:
    """Accuracy, errors AUROC by `uncertainty` and foreign AUROC by `foreignness`."""
    found = {(row.task, row.score): row.metrics for row in rows}
    return {
        "accuracy": found["accuracy", "prediction"]["accuracy"],
        "errors": found["misclassification", "uncertainty"]["auroc"],
        "foreign": found["ood", "foreignness"]["auroc"],
    }


def described(settings: Mapping[str, object]) -> str:
    """Settings as a table shows them; `cycle` does nothing under a cosine."""
    shown = [f"{name} {'none' if value is None else value}" for name, value in settings.items() if name != "cycle"]
    return ", ".join(shown) or "as in the recipe"


def table(path: Path) -> str:
    """The Markdown table of the trials: means over the draws in %, by method, the best one first."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [
        "| method | settings | accuracy | errors AUROC | foreign AUROC | mean of both |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for method in TRIALS:
        means = []
        for settings in dict.fromkeys(row["settings"] for row in rows if row["method"] == method):
            own = [row for row in rows if (row["method"], row["settings"]) == (method, settings)]
            values = [100 * summarize(row[column] for row in own).mean for column in COLUMNS]
            means.append((settings, *values, (values[1] + values[2]) / 2))
        for settings, *values in sorted(means, key=lambda line: -line[-1]):
            lines.append(f"| {method} | {settings} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    return "\n".join(lines)


def main(features: Path, out: Path, methods: Sequence[str]) -> None:
    """Append a line for each trial of the methods on each draw."""
    share, classes = read_feature_file(features), shares()[1]
    with out.open("a") as file, tempfile.TemporaryDirectory() as folder:
        for draw in draws_for_selection()[:USED]:
            task = task_of(draw, share, classes, Path(folder), {})
            for method in methods:
                for settings in TRIALS[method]:
                    row = {"method": method, "settings": described(settings), "seed": draw.number}
                    print(json.dumps(row | figures(run(task, method, settings))), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or tuple(TRIALS))
