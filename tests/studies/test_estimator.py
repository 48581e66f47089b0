"""The committed rows of the estimator's study, and what its page says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.estimator import ESTIMATORS, FOREIGN_SPLITS, SETS, SPLITS, run

ROWS = Path(__file__).parents[2] / "results" / "estimator.jsonl"


def test_every_set_estimator_and_split_has_one_row() -> None:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    found = [(row["data"], row["estimator"], row["seed"]) for row in rows]
    assert sorted(found) == sorted((d, e, s) for d in SETS for e in ESTIMATORS for s in range(SPLITS))
    for row in rows:
        assert ("errors AUROC" in row) == (row["accuracy"] < 1)
        assert ("foreign AUROC" in row) == (row["data"] != "breast_cancer" and row["seed"] < FOREIGN_SPLITS)


@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_a_committed_row_is_reproduced(estimator: str) -> None:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    committed = next(row for row in rows if (row["data"], row["estimator"], row["seed"]) == ("wine", estimator, 7))
    for column, value in run("wine", estimator, 7).items():
        if column not in {"data", "estimator", "seed", "seconds"}:
            # float64 sums in another order may turn one of 54 predictions
            assert value == pytest.approx(committed[column], abs=0.03), column
