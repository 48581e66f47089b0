"""The committed rows of the estimator's study, and what its page says of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from scipy import stats

from dsui.evaluation.statistics import ALIKE, DIFFERENT
from studies.estimator import ESTIMATORS, FOREIGN_SPLITS, OURS, SETS, SPLITS, TESTS, p_value, run, table

ROWS = Path(__file__).parents[2] / "results" / "estimator.jsonl"


def test_every_set_estimator_and_split_has_one_row() -> None:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    found = [(row["data"], row["estimator"], row["seed"]) for row in rows]
    assert sorted(found) == sorted((d, e, s) for d in SETS for e in ESTIMATORS for s in range(SPLITS))
    for row in rows:
        assert ("errors AUROC" in row) == (row["accuracy"] < 1)
        assert ("foreign AUROC" in row) == (row["data"] != "breast_cancer" and row["seed"] < FOREIGN_SPLITS)


def test_splits_that_share_samples_weigh_less_than_independent_ones() -> None:
    differences = [0.03, 0.01, -0.01, 0.02, 0.04]
    plain = stats.ttest_1samp(differences, 0)
    # the variance of the mean is (1/5 + 3/7) s^2 in place of s^2 / 5
    shrunk = plain.statistic / (1 + 5 * 3 / 7) ** 0.5
    assert p_value(differences) == pytest.approx(2 * stats.t.sf(shrunk, 4))
    assert p_value([0.0] * 5) == 1
    assert math.isnan(p_value([0.1, 0.2]))


def test_every_difference_that_can_be_tested_is_marked() -> None:
    found = table(ROWS)
    assert found.count(DIFFERENT) + found.count(ALIKE) == TESTS
    assert not any(mark in line for line in found.splitlines() if OURS in line for mark in (DIFFERENT, ALIKE))


@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_a_committed_row_is_reproduced(estimator: str) -> None:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    committed = next(row for row in rows if (row["data"], row["estimator"], row["seed"]) == ("wine", estimator, 7))
    for column, value in run("wine", estimator, 7).items():
        if column not in {"data", "estimator", "seed", "seconds"}:
            # float64 sums in another order may turn one of 54 predictions
            assert value == pytest.approx(committed[column], abs=0.03), column
