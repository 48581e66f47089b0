"""The shipped experiment fails where something is broken, and judges as its formula says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from dsui import objectives, scores
from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow
from dsui.experiments import verification
from dsui.experiments.cell_run import RunContext
from dsui.experiments.verification import (
    FALSE_ALARMS,
    SEEDS,
    Check,
    compare_with_shipped,
    deviations_allowed,
    run_experiment,
    shipped_grid,
)
from dsui.training.loop import InterruptedRun
from dsui.training.reporter import SilentReporter
from tests.support.result_row import ROW

CONTEXT = RunContext(root=None, device=torch.device("cpu"), keep_outputs=False, reporter=SilentReporter())
SHIPPED = verification.shipped_rows()


def check_again(method: str) -> list[Check]:
    """One seed of one method, run again now."""
    grid = shipped_grid([0])
    grid = replace(grid, cells=tuple(cell for cell in grid.cells if cell.config.method == method))
    return compare_with_shipped(run_experiment(grid, CONTEXT), [row for row in SHIPPED if row.method == method])


def wrong(found: Sequence[Check]) -> set[tuple[str, str | None, str]]:
    fallen = (check for check in found if check.verdict in ("differs", "missing"))
    return {(check.figure.task, check.figure.score, check.figure.metric) for check in fallen}


def test_the_shipped_rows_are_those_of_the_grid() -> None:
    grid = shipped_grid()
    seeds = {cell.config.seed for cell in grid.cells}
    assert set(SEEDS) < seeds
    assert {(row.method, row.seed, row.run) for row in SHIPPED} == {
        (cell.config.method, cell.config.seed, cell.run_name) for cell in grid.cells
    }
    shown = {(block.task, metric) for block in grid.table for metric in block.metrics}
    assert {(row.task, metric) for row in SHIPPED for metric in row.metrics} == shown
    assert all(
        len(check.same_seeds) == len(seeds) and check.verdict == "equal"
        for check in compare_with_shipped(SHIPPED, SHIPPED)
    )


def push_together(class_scores: Tensor, y: Tensor, rho: float, weights: Tensor | None = None) -> Tensor:
    """`bounded` of images that count alike, with the sign of the push turned round: other classes pull as well."""
    assert weights is None
    own = F.one_hot(y, class_scores.shape[1]).bool()
    others = class_scores.masked_fill(own, -math.inf).logsumexp(1) + math.log(rho)
    return F.softplus(-others - objectives.own(class_scores, y)).mean()


def test_a_push_of_the_wrong_sign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectives, "bounded", push_together)
    assert ("accuracy", "prediction", "accuracy") in wrong(check_again("dsui"))


@pytest.mark.parametrize(
    ("score", "tasks"),
    [("max_probability", {"misclassification", "ood", "noise"}), ("log_density", {"ood", "noise"})],
)
def test_an_inverted_score_is_noticed_in_each_task_it_serves(
    monkeypatch: pytest.MonkeyPatch, score: str, tasks: set[str]
) -> None:
    right: Callable[[Tensor], Tensor] = getattr(scores, score)
    monkeypatch.setattr(scores, score, lambda outputs: -right(outputs))
    assert {task for task, by, _ in wrong(check_again("dsui")) if by == score} == tasks


def test_training_at_a_fraction_of_the_rate_is_noticed() -> None:
    grid = shipped_grid([0])
    cell = next(cell for cell in grid.cells if cell.config.method == "msp")
    slow = replace(cell.config.recipe, peak_rate=cell.config.recipe.peak_rate / 4)
    grid = replace(grid, cells=(replace(cell, config=replace(cell.config, recipe=slow)),))
    found = compare_with_shipped(run_experiment(grid, CONTEXT), [row for row in SHIPPED if row.method == "msp"])
    assert ("accuracy", "prediction", "accuracy") in wrong(found)


def rows(values: Sequence[float], metric: str = "auroc") -> list[ResultRow]:
    return [replace(ROW, seed=seed, metrics={metric: value}) for seed, value in enumerate(values)]


def test_the_bounds_are_those_of_students_t_in_log_odds() -> None:
    values = [0.90, 0.95, 0.97, 0.99]
    (check,) = compare_with_shipped(rows([0.5, 0.6]), rows(values))
    odds = [math.log(value / (1 - value)) for value in values]
    # the interval for the mean of two more: that of Welch's formula with the shipped deviation for both
    half = stats.t.isf(FALSE_ALARMS / 2, 3) * np.std(odds, ddof=1) * math.sqrt(1 / 2 + 1 / 4)
    bounds = [1 / (1 + math.exp(-(np.mean(odds) + sign * half))) for sign in (-1, 1)]
    assert [check.low, check.high] == pytest.approx(bounds, rel=1e-12)  # rounding alone
    (in_logs,) = compare_with_shipped(rows([1.0], "nll"), rows([1.0, 1.2, 1.5], "nll"))
    assert in_logs.low * in_logs.high == pytest.approx((1.0 * 1.2 * 1.5) ** (2 / 3), rel=1e-12)  # likewise


def test_new_runs_of_normal_figures_raise_false_alarms_as_rarely_as_promised() -> None:
    runs, shipped, figures, draws = 3, 20, 1, 400_000
    drawn = np.random.default_rng(0).standard_normal((draws, shipped + runs))
    before, after = drawn[:, :shipped], drawn[:, shipped:]
    off = np.abs(after.mean(1) - before.mean(1)) / before.std(1, ddof=1)
    alarms = (off > deviations_allowed(runs, shipped, figures)).mean()
    assert alarms == pytest.approx(FALSE_ALARMS, abs=2e-4)  # four deviations of a share of 0.001 in 400,000
    assert deviations_allowed(runs, shipped, 15) > deviations_allowed(runs, shipped, 1)


def test_verdicts() -> None:
    shipped = rows([0.90, 0.91, 0.92, 0.93, 0.94])
    verdicts = {
        "equal": [0.9004, 0.9099],
        "alike": [0.94, 0.90],
        "differs": [0.30, 0.40],
        "missing": [0.90, math.nan],
    }
    for verdict, values in verdicts.items():
        (check,) = compare_with_shipped(rows(values), shipped)
        assert check.verdict == verdict
    (gone,) = compare_with_shipped([replace(row, score="max_probability") for row in rows([0.9])], shipped)
    assert gone.verdict == "missing"


def test_figures_at_their_ends_and_without_deviation_can_be_check_again() -> None:
    (perfect,) = compare_with_shipped(rows([1.0, 1.0]), rows([1.0, 1.0, 1.0]))
    assert perfect.verdict == "equal"
    (worse,) = compare_with_shipped(rows([0.98, 1.0]), rows([1.0, 1.0, 1.0]))
    assert worse.verdict == "differs"
    (null,) = compare_with_shipped(rows([0.0]), rows([0.97, 0.98, 0.99, 0.98, 0.97]))
    assert null.verdict == "differs"
    (null,) = compare_with_shipped(rows([0.0], "nll"), rows([0.2, 0.21, 0.2, 0.21], "nll"))
    assert null.verdict == "differs"


def test_a_run_that_fails_or_is_stopped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no memory is left.")

    monkeypatch.setattr("dsui.experiments.study.train", fail)
    with pytest.raises(DsuiError, match=r"msp, digits, small, seed 0 failed: no memory is left\."):
        run_experiment(shipped_grid([0]), CONTEXT)

    def stop(*_: object, **__: object) -> None:
        raise InterruptedRun("saved; go on with --resume")

    monkeypatch.setattr("dsui.experiments.study.train", stop)
    with pytest.raises(DsuiError, match="nothing is verified"):
        run_experiment(shipped_grid([0]), CONTEXT)
