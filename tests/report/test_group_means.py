"""Means over groups of foreign sets: near and far of OpenOOD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsui.evaluation.results import ResultRow
from dsui.experiments.grid_checks import GridError
from dsui.experiments.grid_file import parse_grid
from dsui.experiments.study_table import columns
from dsui.report.group_means import group_columns, with_group_means
from tests.support.comparison_rows import ROW

GROUPS = {"near": ("cifar10", "cifar100", "tiny-imagenet"), "far": ("svhn", "photos")}
NEAR = "near, mean of cifar100 and tiny-imagenet"


def row(foreign: str, auroc: float, seed: int = 0, score: str = "energy", **more: float) -> ResultRow:
    metrics = {"auroc": auroc, **more}
    return replace(ROW, data="cifar10", run=f"dsui-{seed}", seed=seed, foreign=foreign, score=score, metrics=metrics)


def test_a_group_is_the_mean_over_its_sets_for_each_run_and_score() -> None:
    rows = [row("cifar100", 0.90, fpr95=0.5), row("tiny-imagenet", 0.94), row("svhn", 0.99)]
    rows += [row("cifar100", 0.80, seed=1), row("tiny-imagenet", 0.60, seed=1)]
    rows += [row("cifar100", 0.50, score="norm"), row("tiny-imagenet", 0.70, score="norm")]
    found = with_group_means(rows, GROUPS)
    assert found[: len(rows)] == rows
    means = {(each.seed, each.score): each.metrics for each in found[len(rows) :]}
    assert {each.foreign for each in found[len(rows) :]} == {NEAR}  # photos were not evaluated
    assert means[0, "energy"] == {"auroc": pytest.approx(0.92)}  # fpr95 is not there for both
    assert means[1, "energy"]["auroc"] == pytest.approx(0.70)
    assert means[0, "norm"]["auroc"] == pytest.approx(0.60)


def test_the_runs_own_data_is_not_foreign_and_one_set_is_no_group() -> None:
    assert list(group_columns(GROUPS, "cifar10")) == [NEAR, "far, mean of svhn and photos"]
    assert list(group_columns(GROUPS, "svhn")) == ["near, mean of cifar10 and cifar100 and tiny-imagenet"]


def test_rows_stay_as_they_are_without_groups() -> None:
    rows = [row("cifar100", 0.9), row("tiny-imagenet", 0.8)]
    assert with_group_means(rows, {}) == rows


GRID = """
data: cifar10
seeds: 0
tasks: [ood]
foreign: [cifar100, tiny-imagenet, svhn]
means: {near: [cifar100, NAME]}
table: [{task: ood, metrics: auroc, scores: energy}]
"""


def test_a_grid_names_groups_whose_means_stand_behind_the_sets() -> None:
    grid = parse_grid(GRID.replace("NAME", "tiny-imagenet"), "mine")
    assert [figure.foreign for figure in columns(grid)] == ["cifar100", "tiny-imagenet", "svhn", NEAR]
    with pytest.raises(GridError, match="mine, means: there is no foreign set 'tiny'; did you mean tiny-imagenet"):
        parse_grid(GRID.replace("NAME", "tiny"), "mine")
