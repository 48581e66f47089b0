"""`dsui monitor` on what `dsui predict` wrote, from a run and from an ONNX file: sentences and exit status."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data.registry import load
from dsui.deploy.promised import promise_of_run
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import calibrated, own_copy
from tests.support.onnx_model import write_onnx_model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that keeps a threshold, and predictions of digits, of noise, and of digits followed by noise."""
    folder = tmp_path_factory.mktemp("monitor")
    run = own_copy(calibrated(), folder / "run")
    assert dsui("threshold", run, "--coverage", "0.9", "--save", "--quiet", "--foreign", "photos").exit_code == 0
    digits, generator = load("digits", "test"), np.random.default_rng(0)
    images = digits.read(torch.from_numpy(generator.permutation(len(digits.labels))))[:, 0].numpy()
    noise = generator.integers(0, 256, (100, 8, 8), dtype=np.uint8)
    for number, image in enumerate([*images[:300], *noise]):
        (folder / "images").mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / "images" / f"{number:04d}.png")
    assert dsui("predict", run, folder / "images", "--out", folder / "all.csv", "--quiet").exit_code == 0
    lines = (folder / "all.csv").read_text().splitlines(keepends=True)
    (folder / "digits.csv").write_text("".join(lines[:301]))
    return folder


def test_digits_are_no_alarm_and_noise_after_them_is(place: Path) -> None:
    quiet = dsui("monitor", place / "digits.csv", "--run", place / "run")
    assert quiet.exit_code == 0
    assert quiet.stdout.startswith("No alarm over 300 images.\nNo alarm: ")
    loud = dsui("monitor", place / "all.csv", "--run", place / "run")
    assert loud.exit_code == 1
    assert loud.stdout.startswith("ALARM over 400 images: they are not like the calibration images.")
    assert "add --shuffle" in loud.stdout
    told = json.loads(dsui("monitor", place / "all.csv", "--run", place / "run", "--json").stdout)
    assert told["alarm"]
    assert min(each["since"] or 999 for each in told["monitors"]) > 300


def test_a_smaller_chance_of_a_false_alarm_waits_longer(place: Path) -> None:
    words = ["monitor", place / "all.csv", "--run", place / "run", "--json", "--false-alarm"]
    usual, strict = (json.loads(dsui(*words, chance).stdout)["monitors"][1]["since"] for chance in ("0.01", "1e-9"))
    assert 300 < usual < strict


def test_labels_that_come_later_need_a_risk_or_a_threshold_by_risk(place: Path) -> None:
    with (place / "digits.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    text = "file,label\n" + "".join(f"{row['file']},{row['label']}\n" for row in rows)
    (place / "labels.csv").write_text(text)
    words = ["monitor", place / "digits.csv", "--run", place / "run", "--labels", place / "labels.csv"]
    assert exit_status(*words) == 2
    right = dsui(*words, "--risk", "0.05")
    assert right.exit_code == 0
    assert "accepted images with a label wrong" in right.stdout
    (place / "labels.csv").write_text(text.replace(",3\n", ",8\n").replace(",1\n", ",7\n"))
    assert dsui(*words, "--risk", "0.05").exit_code == 1


def test_an_exported_file_is_enough(place: Path) -> None:
    promise = promise_of_run(place / "run")
    quantiles = np.quantile(np.array(promise.scores["uncertainty"]), np.linspace(0, 1, 101), method="inverted_cdf")
    thresholds = {
        "limits": [{"score": "uncertainty", "value": promise.most["uncertainty"], "finds": "errors"}],
        "asked": {"coverage": promise.asked_coverage, "risk": None},
        "coverage": promise.accepted,
        "risk": 0.0,
        "images": promise.images,
    }
    calibration = {"images": promise.images, "errors": 0, "uncertainty": quantiles.tolist()}
    changes = {"thresholds": thresholds, "calibration": calibration}
    write_onnx_model(place / "model.onnx", classes=promise.classes, changes=changes)
    words = ["monitor", place / "all.csv", "--json", "--run"]
    by_file, by_run = (json.loads(dsui(*words, place / name).stdout) for name in ("model.onnx", "run"))
    assert by_file == by_run


def test_predictions_of_another_run_or_threshold_are_an_error_and_no_alarm(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_onnx_model(place / "animals.onnx")
    other = place / "other.csv"
    other.write_text((place / "digits.csv").read_text().replace(",accept,", ",reject,"))
    (place / "empty.csv").write_text((place / "digits.csv").read_text().splitlines()[0])
    for predictions, run, sentence in (
        ("digits.csv", "animals.onnx", "the label '0' is no class of this run; name the run that predicted."),
        ("other.csv", "run", "decisions are not those of the threshold that this run keeps; name the run that"),
        ("empty.csv", "run", "there is no predicted image"),
    ):
        assert exit_status("monitor", place / predictions, "--run", place / run) == 2
        assert sentence in capsys.readouterr().err
    assert exit_status("monitor", other, "--run", place / "run", "--coverage", "0.5") < 2, "it says which threshold"


@pytest.mark.parametrize(
    "words",
    [
        ["none.csv", "--run", "run"],
        ["digits.csv", "--run", "nowhere"],
        ["digits.csv", "--run", "none.onnx"],
        ["digits.csv", "--run", "digits.onnx"],
        ["digits.csv", "--run", "run", "--false-alarm", "0"],
    ],
)
def test_an_alarm_cannot_be_mistaken_for_an_error(place: Path, words: list[str]) -> None:
    (place / "digits.onnx").write_bytes(b"rubbish")
    options = {"--run", "--false-alarm", "0"}
    inside = [word if word in options else str(place / word) for word in words]
    assert exit_status("monitor", *inside) == 2
