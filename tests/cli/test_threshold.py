"""`dsui threshold` against what `dsui predict` decides on the same images, and against counting by hand."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from dsui.cli import app
from dsui.data.registry import load
from dsui.deploy.scorer import ScoredSet
from dsui.deploy.threshold_effects import OWN, set_effect
from dsui.limits import Criterion, Limit
from dsui.runs.acceptance import Thresholds

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


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "own"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred test digits and fifty images of noise."""
    out = tmp_path_factory.mktemp("images")
    digits = load("digits", "test").read(torch.arange(100))[:, 0]
    noise = torch.randint(256, (50, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    for number, image in enumerate([*digits, *noise]):
        Image.fromarray(image.numpy()).save(out / f"{number:03}.png")
    return out


@pytest.mark.parametrize(
    ("words", "scores"),
    [
        ([], ["uncertainty"]),
        (["--score", "log_density"], ["log_density"]),
        (["--two"], ["uncertainty", "foreignness"]),
        (["--detector", "knn", "--two"], ["uncertainty", "knn"]),
        (["--foreign-score", "max_logit", "--score", "entropy"], ["entropy", "max_logit"]),
    ],
)
def test_a_saved_threshold_is_what_predict_accepts_by(
    own_run: Path, folder: Path, words: list[str], scores: list[str]
) -> None:
    saved = dsui("threshold", own_run, "--coverage", "0.9", "--save", "--foreign", "photos", "--json", *words)
    record, everything = json.loads(saved.stdout)
    assert (record["saved"], record["accepting_by"], record["asked"]) == (True, "coverage", 0.9)
    assert [limit["score"] for limit in record["thresholds"]] == scores
    assert record["calibration"]["accepted"] >= 0.9
    assert everything["accepting_by"] is None
    assert "`dsui predict` accepts by it from now on" in saved.stderr
    told = dsui("predict", own_run, folder, "--json")
    again = dsui("predict", own_run, folder, "--json", "--coverage", "0.9", *words)
    assert told.stdout == again.stdout
    assert "Saved in the run, by coverage 0.9." in told.stderr
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(rows) == 150
    for row in rows:
        shown = {score: -row["log_density"] if score == "log_density" else row[score] for score in scores}
        rejecting = [limit["finds"] for limit in record["thresholds"] if shown[limit["score"]] > limit["up_to"]]
        assert (row["decision"] == "reject") == bool(rejecting)
        words_of = {"errors": "uncertain", "foreign images": "foreign"}
        assert row["reason"] == (" and ".join(words_of[each] for each in rejecting) or None)
    # four deviations: a share of 100 images deviates by 3 %, the threshold of 300 by 1.7 %
    assert sum(row["decision"] == "accept" for row in rows[:100]) >= 76


def test_of_two_thresholds_the_coverage_is_what_both_accept_of_the_test_images(run: Path) -> None:
    result = dsui("threshold", run, "--two", "--coverage", "0.8,0.95", "--risk", "", "--format", "csv")
    lines = list(csv.DictReader(result.stdout.splitlines()))
    assert list(lines[0])[:4] == ["accepting by", "uncertainty up to", "foreignness up to", "test accepted"]
    for line, coverage in zip(lines, (0.8, 0.95), strict=False):
        deviation = math.sqrt(coverage * (1 - coverage) * (1 / 797 + 1 / 300))
        assert abs(float(line["test accepted"]) - coverage) < 4 * deviation + 5 / 301


def test_no_column_of_csv_is_empty_and_json_holds_the_same_shares(run: Path) -> None:
    asked = ["--coverage", "0.5,0.9999", "--risk", "", "--foreign", "photos"]
    lines = list(csv.DictReader(dsui("threshold", run, *asked, "--format", "csv").stdout.splitlines()))
    assert all(any(line[name] for line in lines) for name in lines[0])
    records = json.loads(dsui("threshold", run, *asked, "--json").stdout)
    assert [record["asked"] for record in records] == [0.5, 0.9999, None]
    for line, record in zip(lines, records, strict=True):
        sets = {each["name"]: each for each in record["sets"]}
        assert list(sets) == ["test", "photos", "noise"]
        assert {name: line[f"{name} accepted"] for name in sets} == {
            name: "" if each["accepted"] is None else str(each["accepted"]) for name, each in sets.items()
        }
        assert (record["obstacle"] is None) == (record["asked"] != 0.9999)
        assert (record["thresholds"] == []) == (record["asked"] != 0.5)


def test_a_file_has_the_form_that_its_name_says(run: Path, tmp_path: Path) -> None:
    for name in ("t.json", "t.csv", "t.md"):
        assert dsui("threshold", run, "--coverage", "0.5", "--risk", "", "--out", tmp_path / name).stdout == ""
    assert json.loads((tmp_path / "t.json").read_text())[0]["asked"] == 0.5
    assert (tmp_path / "t.csv").read_text().startswith("accepting by,uncertainty up to,test accepted,")
    assert "| coverage 0.5 |" in (tmp_path / "t.md").read_text()


def test_what_the_run_keeps_is_marked_and_a_file_that_cannot_be_used_is_no_obstacle_to_another(own_run: Path) -> None:
    asked = ["--foreign", "photos", "--risk", ""]
    dsui("threshold", own_run, *asked, "--coverage", "0.9", "--save")
    kept = dsui("threshold", own_run, *asked).stdout
    assert "coverage 0.9 *" in kept
    assert "* saved in the run." in kept
    other = " ".join(dsui("threshold", own_run, *asked, "--score", "entropy", "--coverage", "0.5").stdout.split())
    assert "Saved in the run: uncertainty up to" in other
    (own_run / "thresholds.safetensors").write_bytes(b"nonsense")
    refused = CliRunner().invoke(app, ["predict", str(own_run), str(own_run)])
    assert "cannot be used (the file is damaged or of another dsui)" in str(refused.exception)
    mended = dsui("threshold", own_run, *asked, "--coverage", "0.9", "--save")
    assert (mended.exit_code, "coverage 0.9 *" in mended.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--save"], "--save keeps one threshold; name it with --coverage 0.95 or --risk 0.02"),
        (["--save", "--coverage", "0.9,0.8"], "--save keeps one threshold and 2 are named"),
        (["--save", "--coverage", "0.9999"], "a coverage of 0.9999 takes at least 9999 calibration images"),
        (["--save", "--risk", "0.0001"], "cannot assure a risk of 0.0001"),
        (["--score", "foreigness"], "no score 'foreigness'; did you mean foreignness"),
        (["--detector", "nn"], "no detector 'nn'; did you mean knn"),
        (["--score", "mutual_information"], "dsui does not have the score mutual_information"),
        (["--two", "--score", "foreignness"], "both thresholds are of foreignness"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_saved(own_run: Path, words: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["threshold", str(own_run), *words])
    assert result.exit_code != 0
    assert sentence in str(result.exception)
    assert not (own_run / "thresholds.safetensors").exists()


def test_predict_refuses_a_score_without_a_threshold(run: Path, folder: Path) -> None:
    result = CliRunner().invoke(app, ["predict", str(run), str(folder), "--score", "entropy"])
    assert "a score needs a threshold; add --coverage 0.95 or --risk 0.02" in str(result.exception)
