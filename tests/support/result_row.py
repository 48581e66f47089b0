"""A results row for tests to change."""

from __future__ import annotations

from dsui.evaluation.results import ResultRow

ROW = ResultRow(
    run="dsui-0",
    method="dsui",
    objective="bounded",
    data="cifar10",
    backbone="resnet18",
    recipe="paper",
    seed=0,
    task="ood",
    foreign="svhn",
    score="entropy",
    metrics={},
    n_positive=1,
    n_negative=1,
    protocol=None,
    split=None,
    versions={},
    device="cpu",
    seconds=1.0,
    commit=None,
)
