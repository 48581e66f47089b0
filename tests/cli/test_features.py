"""Every command on features alone, as on images; what needs images is left out with a sentence."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command_line import dsui
from tests.support.feature_files import foreign, written


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits.npz, foreign.npz and a run of five epochs on the first."""
    folder = tmp_path_factory.mktemp("features")
    file = written(folder)
    foreign(folder)
    result = dsui("train", "--data", f"features:{file}", "--set", "epochs=5", "--out", folder / "run", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["backbone"], facts["recipe"]) == ("features", "features")
    assert facts["held_out"]["accuracy"] > 0.6  # a guess is 0.1; 86 % when written
    return folder


def rows(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_evaluate_ranks_errors_foreign_features_and_noise_and_says_what_it_leaves_out(place: Path) -> None:
    foreign = f"features:{place / 'foreign.npz'}"
    result = dsui(
        *["evaluate", place / "run", "--tasks", "all", "--foreign", foreign, "--detectors", "knn,odin", "--json"]
    )
    assert result.exit_code == 0, result.output
    found = rows(result.stdout)
    assert {row["task"] for row in found} == {"accuracy", "misclassification", "ood", "noise"}
    assert "fgsm attacks pixels" in result.stderr
    assert "odin changes pixels" in result.stderr
    auroc = {(row["task"], row["score"]): row["metrics"].get("auroc") for row in found}
    assert auroc["ood", "knn"] > 0.9
    assert auroc["noise", "log_density"] > 0.8  # 0.5 if noise were of the same distribution


def test_threshold_compare_and_report_take_the_run(place: Path) -> None:
    assert dsui("evaluate", place / "run", "--tasks", "misclassification", "--quiet").exit_code == 0
    result = dsui("threshold", place / "run", "--coverage", "0.9", "--risk", "", "--json")
    assert result.exit_code == 0, result.output
    assert dsui("compare", place / "run", "--reference", "dsui").exit_code == 0
    page = place / "page.html"
    result = dsui("report", place / "run", "--out", page, "--foreign", f"features:{place / 'foreign.npz'}")
    assert result.exit_code == 0, result.output
    assert "Images to look at" not in page.read_text(encoding="utf-8")


def test_predict_names_rows_and_decides(place: Path) -> None:
    result = dsui("predict", place / "run", place / "foreign.npz", "--coverage", "0.9")
    assert result.exit_code == 0, result.output
    predicted = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(predicted) == 60
    assert predicted[7]["file"] == f"{place / 'foreign.npz'}:7"
    assert {row["decision"] for row in predicted} <= {"accept", "reject"}
    assert "60 rows predicted" in result.stderr


def test_data_check_counts_the_rows_of_each_class(place: Path) -> None:
    result = dsui("data", "check", f"features:{place / 'digits.npz'}", "--json")
    assert result.exit_code == 0, result.output
    train, test = json.loads(result.stdout)["splits"]
    assert train["images"] + test["images"] == 600
    assert sum(train["per_class"].values()) == train["images"]


def test_what_needs_images_is_refused_before_anything_is_written(place: Path) -> None:
    data, out = f"features:{place / 'digits.npz'}", place / "never"
    for words, sentence in (
        (["--method", "rotpred"], "rotpred needs images"),
        (["--set", "doubles=turns"], "doubles=turns needs images"),
        (["--backbone", "vgg16"], "are features already"),
        (["--size", "32"], "have no size"),
        (["--outliers", "digits"], "name a file of features:FILE"),
        (["--channels", "1"], "--channels and --skip-bad are for folder:PATH"),
    ):
        result = dsui("train", "--data", data, "--out", out, *words)
        assert result.exit_code in {1, 2}
        assert sentence in str(result.exception or "") + result.output, words
        assert not out.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tasks", "fgsm"], "fgsm attacks pixels, and this run was trained on features"),
        (["--foreign", "photos"], "did not say which network made its features; name features"),
        (["--foreign", "blends"], "blends are made of images"),
        (["--foreign", "features:{place}/digits.npz"], "is the run's own data set"),
        (["--foreign", "features:{place}/nowhere.npz"], "nowhere.npz is missing"),
    ],
)
def test_evaluation_says_what_it_cannot_do(place: Path, words: list[str], sentence: str) -> None:
    result = dsui("evaluate", place / "run", *(word.format(place=place) for word in words), "--quiet")
    assert sentence in str(result.exception)


def test_features_of_another_width_are_refused_everywhere(place: Path, tmp_path: Path) -> None:

    other = tmp_path / "other.npz"
    np.savez(other, features=np.ones((5, 7), dtype=np.float32))
    result = dsui("evaluate", place / "run", "--foreign", f"features:{other}", "--tasks", "ood", "--quiet")
    assert "has 7 features and" in str(result.exception)
    result = dsui("predict", place / "run", other)
    assert "has 7 features in a row and the model takes 48" in str(result.exception)


def test_a_run_on_images_refuses_features(place: Path) -> None:
    from tests.support.digit_runs import run

    result = dsui("evaluate", run(), "--foreign", f"features:{place / 'foreign.npz'}", "--tasks", "ood", "--quiet")
    assert "are features, and this run was trained on images" in str(result.exception)


def test_a_run_on_features_with_saved_thresholds_predicts(place: Path) -> None:
    saved = place / "thresholds"
    train = ["train", "--data", f"features:{place / 'digits.npz'}", "--set", "epochs=2", "--out", saved, "--quiet"]
    for command in (train, ["threshold", saved, "--coverage", "0.9", "--save", "--quiet"]):
        result = dsui(*command)
        assert result.exit_code == 0, result.output
    result = dsui("predict", saved, place / "foreign.npz")
    assert result.exit_code == 0, result.output
    assert {row["decision"] for row in csv.DictReader(io.StringIO(result.stdout))} <= {"accept", "reject"}
