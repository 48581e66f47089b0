"""Committed rows are of runs that a shipped study makes again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsui.experiments.grid_file import load_grid
from dsui.runs.training_name import training_name

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("file", "study"),
    [
        ("cifar10-resnet18-paper", "cifar10-paper"),
        ("cifar10-parts", "cifar10-parts"),
        ("paper-sets", "paper-sets"),
        ("cifar10-modern", "cifar10-modern"),
        ("modern-selection", "cifar10-modern-selection"),
        ("small-net", "small-net"),
        ("small-net-attacks", "small-net"),
        ("cifar10-attacks", "cifar10-attacks"),
        ("small-net-long", "small-net-long"),
        ("small-net-cifar100", "small-net-long"),
        ("small-net-modern", "small-net-modern"),
        ("small-net-sam", "small-net-modern"),
        ("small-net-printed", "small-net-printed"),
        ("digits-methods", "digits-methods"),
        ("digits-unknown", "digits-unknown"),
    ],
)
def test_every_row_is_of_a_run_of_its_study(file: str, study: str) -> None:
    cells = load_grid(study).cells
    runs = {(c.predictor, c.config.data, c.config.backbone, training_name(c.config), c.config.seed) for c in cells}
    rows = map(json.loads, (RESULTS / f"{file}.jsonl").read_text().splitlines())
    found = {(row["method"], row["data"], row["backbone"], row["recipe"], row["seed"]) for row in rows}
    assert sorted(found - runs) == []
