"""Results rows of made-up runs, to be compared."""

from __future__ import annotations

from dataclasses import replace

from dsui.evaluation.results import ResultRow
from tests.support import result_row

ROW = replace(
    result_row.ROW,
    run="",
    data="digits",
    backbone="small",
    recipe="demo",
    foreign="photos",
    score="max_probability",
    n_positive=1500,
    n_negative=797,
    protocol="ood, all in-domain images of test",
    split="all-classes:0",
)


def rows_of(method: str, seed: int, auroc: float) -> list[ResultRow]:
    """A run's rows: accuracy, and two scores of one task."""
    ood = replace(ROW, run=f"{method}-{seed}", method=method, seed=seed, metrics={"auroc": auroc, "fpr95": 1 - auroc})
    accuracy = replace(ood, task="accuracy", foreign=None, score="prediction", metrics={"accuracy": 0.9, "nll": 1.0})
    return [accuracy, ood, replace(ood, score="log_density", metrics={"auroc": auroc / 2})]
