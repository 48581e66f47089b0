"""`dsui threshold` against what `dsui predict` decides on the same images, and against counting by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from dsui.cli import app
from dsui.data.registry import load
from dsui.deploy.scorer import ScoredSet
from dsui.deploy.threshold_effects import OWN, set_effect
from dsui.runs.acceptance import Criterion, Limit, Thresholds

TRAIN = ["train", "--data", "digits", "--method", "dsui", "--backbone", "small", "--recipe", "demo"]
SETTINGS = ["--set", "epochs=3", "--calibration", "0.3", "--device", "cpu", "--quiet"]


def dsui(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False, env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "mine"
    assert dsui(*TRAIN, *SETTINGS, "--out", out).exit_code == 0
    return out


@pytest.fixture(scope="module")
def lines(run: Path) -> dict[str, dict[str, str]]:
    result = dsui("threshold", run, "--coverage", "0.5,0.9", "--risk", "0.5,0.0001", "--format", "csv")
    assert result.exit_code == 0
    table = list(csv.DictReader(result.stdout.splitlines()))
    return {line["accepting by"]: line for line in table}


def test_a_line_for_each_demand_and_one_for_none(lines: dict[str, dict[str, str]]) -> None:
    assert list(lines) == ["coverage 0.5", "coverage 0.9", "risk 0.5", "risk 0.0001", "no threshold"]
    shares = [float(lines[name]["test accepted"]) for name in ("coverage 0.5", "coverage 0.9", "no threshold")]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert abs(shares[0] - 0.5) < 0.1, "797 images accepted at a threshold of 300 others"
    expected = ["test accepted", "test wrong", "photos accepted", "noise accepted"]
    assert [name for name in lines["no threshold"] if name.endswith(("accepted", "wrong"))] == expected
    impossible = lines["risk 0.0001"]
    assert [impossible[name] for name in ("uncertainty up to", "test accepted", "noise accepted")] == [""] * 3


def test_what_is_accepted_is_what_predict_accepts(run: Path, lines: dict[str, dict[str, str]], tmp_path: Path) -> None:
    digits = load("digits", "test")
    for number, image in enumerate(digits.read(torch.arange(len(digits.labels)))):
        Image.fromarray(image[0].numpy()).save(tmp_path / f"{number:04d}.png")
    asked = dsui("predict", run, tmp_path, "--coverage", "0.9", "--json", "--quiet")
    found = [json.loads(line) for line in asked.stdout.splitlines()]
    kept = [(row, int(label)) for row, label in zip(found, digits.labels, strict=True) if row["decision"] == "accept"]
    told = lines["coverage 0.9"]
    assert float(told["test accepted"]) == pytest.approx(len(kept) / len(found), abs=1e-12)
    wrong = sum(row["label"] != digits.classes[label] for row, label in kept)
    assert float(told["test wrong"]) == pytest.approx(wrong / len(kept), abs=1e-12)
    limit = float(told["uncertainty up to"])
    assert max(row["uncertainty"] for row, _ in kept) <= limit
    assert all(row["uncertainty"] > limit for row in found if row["decision"] == "reject")


def test_images_at_the_threshold_are_accepted_and_of_none_nothing_is_wrong() -> None:
    images = ScoredSet({"entropy": torch.tensor([1.0, 2.0, 2.0, 3.0])}, torch.tensor([False, True, False, True]))
    rules = [
        Thresholds((Limit("entropy", value, "errors"),), Criterion(0.5), 0.5, 0.0, 9) for value in (0.5, 1.0, 2.0, 3.0)
    ]
    effects = [set_effect(OWN, images, each) for each in rules]
    assert [each.accepted for each in effects] == [0, 0.25, 0.75, 1]
    assert [each.wrong for each in effects] == [None, 0, pytest.approx(1 / 3), 0.5]
    assert set_effect("photos", images, rules[3]).wrong is None, "its labels are of other classes"


def test_why_a_demand_cannot_be_met_is_told_below(run: Path) -> None:
    result = dsui("threshold", run, "--coverage", "0.9999", "--risk", "")
    assert result.exit_code == 0
    assert "A coverage of 0.9999 takes at least 9999 calibration images and there are" in " ".join(
        result.stdout.split()
    )
    assert "risk" not in result.stdout.split("Wrong:")[0]


def test_of_several_demands_that_cannot_be_met_the_easiest_says_why(run: Path) -> None:
    result = dsui("threshold", run, "--coverage", "0.9999,0.999,0.99999", "--risk", "0.0001,0.001,0.00001")
    below = " ".join(result.stdout.split("Wrong:")[1].split())
    assert "A coverage of 0.999 takes at least 999" in below
    assert "cannot assure a risk of 0.001:" in below
    assert below.count("calibration images") == 2


def test_a_run_without_calibration_images_is_told_at_once(tmp_path: Path) -> None:
    assert dsui(*TRAIN, "--set", "epochs=1", "--device", "cpu", "--quiet", "--out", tmp_path / "bare").exit_code == 0
    result = CliRunner().invoke(app, ["threshold", str(tmp_path / "bare")])
    assert result.exit_code != 0
    assert "train it with --calibration 0.1" in str(result.exception)
    assert not (tmp_path / "bare" / "outputs").exists(), "nothing was computed before"


@pytest.mark.parametrize("share", ["2", "0", "1", "often", "-0.1", "nan"])
def test_what_is_no_share_is_refused(run: Path, share: str) -> None:
    result = CliRunner().invoke(app, ["threshold", str(run), "--risk", share])
    assert f"'{share}' is not a share between 0 and 1" in str(result.exception)
