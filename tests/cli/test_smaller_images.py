"""Published images at a smaller size, from training to prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from PIL import Image

from dsui.cli.errors import UsageError
from dsui.data.registry import load
from dsui.errors import DsuiError
from tests.support.command_line import dsui

TRAIN = ["train", "--data", "digits", "--backbone", "small", "--recipe", "demo", "--method", "msp", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smaller") / "run"
    result = dsui(*TRAIN, "--size", 4, "--set", "epochs=3", "--calibration", 0.1, "--out", path)
    assert result.exit_code == 0, result.exception
    return path


def test_a_run_remembers_its_size_and_is_evaluated_and_reported_at_it(run: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["data"], config["size"], config["channels"]) == ("digits", 4, 1)
    for part in ("test", "held-out"):
        evaluated = dsui("evaluate", run, "--tasks", "misclassification,ood,noise", "--foreign", "photos", "--on", part)
        assert evaluated.exit_code == 0, evaluated.exception
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert {row["recipe"].removesuffix(", calibration=0.1") for row in rows} == {"demo, epochs=3, size=4"}
    assert max(row["metrics"].get("accuracy", 0) for row in rows) > 0.5  # chance is 0.1
    page = run.parent / "page.html"
    assert dsui("report", run, "--out", page).exit_code == 0
    assert page.stat().st_size > 10_000


def test_files_of_the_published_size_are_predicted(run: Path) -> None:
    digits = load("digits", "test")
    for index in range(3):
        Image.fromarray(digits.read(digits.labels.new_tensor([index]))[0, 0].numpy()).save(run.parent / f"{index}.png")
    predicted = dsui("predict", run, *(run.parent / f"{index}.png" for index in range(3)), "--coverage", 0.9, "--json")
    assert predicted.exit_code == 0, predicted.exception


def test_a_run_is_resumed_at_its_size_alone(run: Path) -> None:
    same = [*TRAIN, "--set", "epochs=3", "--calibration", 0.1, "--out", run, "--resume"]
    assert dsui(*same, "--size", 4).exit_code == 0
    refused = dsui(*same).exception
    assert isinstance(refused, DsuiError)
    assert "size: 4 there, 8 here" in str(refused)


def test_images_are_not_enlarged(tmp_path: Path) -> None:
    refused = dsui(*TRAIN, "--size", 9, "--out", tmp_path / "run").exception
    assert isinstance(refused, UsageError)
    assert "the images of --data digits have 8x8 pixels, and size 9 would enlarge them; choose 1 to 8" in str(refused)
    assert not (tmp_path / "run").exists()
