"""The transfer study: files of a draw hold what it says, all methods give rows of the same kind, intervals are t's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy import stats

from dsui.data.feature_file import FeatureFile, read_feature_file
from dsui.data.features import feature_set, foreign_features
from dsui.evaluation.results import append
from studies.transfer import paired, read_figures, table
from studies.transfer_draws import FOREIGN, KNOWN, PHOTOGRAPHS, Draw
from studies.transfer_estimators import run_estimator
from studies.transfer_runs import Task, run, task_of, write_known

TRAINING, VALIDATION, WIDTH = 60, 5, 12
DRAW = Draw(3, tuple(range(0, 32, 4)), tuple(range(1, 32, 4)))
CLASSES = list(range(32))


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> FeatureFile:
    """32 classes around means of their own. The first feature is the number of the row."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(32).repeat_interleave(TRAINING + VALIDATION)
    features = 2 * torch.randn(32, WIDTH, generator=generator)[labels] + torch.randn(
        len(labels), WIDTH, generator=generator
    )
    features[:, 0] = torch.arange(len(labels))
    for_test = (torch.arange(len(labels)) % (TRAINING + VALIDATION)) >= TRAINING
    path = tmp_path_factory.mktemp("share") / "share.safetensors"
    return read_feature_file(write_known(path, features, labels, for_test, [f"n{label}" for label in range(32)]))


@pytest.fixture
def task(share: FeatureFile, tmp_path: Path) -> Task:
    """`svhn` is the share itself here."""
    return task_of(DRAW, share, CLASSES, tmp_path, {"svhn": share.path})


def rows_in(features: torch.Tensor) -> set[int]:
    return set(features[:, 0].long().flatten().tolist())


def test_a_draw_trains_on_some_rows_of_its_classes_tests_on_the_others_and_has_foreign_ones_of_no_known_class(
    task: Task, share: FeatureFile
) -> None:
    train, test = feature_set(task.known, "train"), feature_set(task.known, "test")
    assert torch.bincount(train.labels).tolist() == [PHOTOGRAPHS] * KNOWN
    assert torch.bincount(test.labels).tolist() == [TRAINING - PHOTOGRAPHS + VALIDATION] * KNOWN
    assert train.classes == tuple(f"n{number}" for number in DRAW.known)
    trained, tested = (rows_in(each.read(torch.arange(len(each.labels)))) for each in (train, test))
    other = rows_in(foreign_features(task.foreign["other classes"]).file.features)
    assert len(other) == FOREIGN * (TRAINING + VALIDATION)
    assert not trained & tested
    assert not other & (trained | tested)
    assert share.labels is not None
    assert {int(share.labels[row]) for row in trained | tested} == set(DRAW.known)
    assert {int(share.labels[row]) for row in other} == set(DRAW.foreign)


def test_methods_and_estimators_give_rows_of_the_same_questions(task: Task) -> None:
    trained = {(row.task, row.foreign, row.score) for row in run(task, "dsui", {"epochs": 2, "cycle": 2})}
    estimated = {(row.task, row.foreign, row.score) for row in run_estimator(task, "DensityClassifier")}
    linear = {(row.task, row.foreign, row.score) for row in run_estimator(task, "logistic regression")}
    assert linear < estimated <= trained | {("accuracy", None, "prediction")}
    assert ("ood", "other classes", "foreignness") in linear


def test_the_table_holds_the_paired_difference_with_students_interval(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for number in range(2):
        numbered = task._replace(number=number)
        settings: dict[str, object] = {"epochs": 2 + number, "cycle": 2 + number}
        append(path, [*run(numbered, "dsui", settings), *run(numbered, "msp", settings)])
    found, column = read_figures(path), ("ood", "other classes", "foreignness")
    first, second = found["dsui"][column], found["msp"][column]
    interval = stats.ttest_rel(list(first.values()), list(second.values())).confidence_interval()
    assert f"({interval.low:+.1f} to {interval.high:+.1f})" in paired(first, second)
    lines = table(path).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["DS-UI", "softmax", "DS-UI minus softmax"]
