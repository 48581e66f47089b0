"""`dsui predict model.onnx`: the rows, files and exit statuses of `dsui predict RUN`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from dsui.cli import runtime_application
from dsui.runtime import OnnxPredictor
from dsui.runtime.rows import PredictionRow
from tests.support.command_line import dsui
from tests.support.onnx_model import write_onnx_model

COLOURS = {"grey": (128, 128, 128), "green": (60, 240, 90), "red": (255, 0, 0)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_onnx_model(tmp_path / "model.onnx", limits=("uncertainty", "foreignness"))
    return tmp_path / "model.onnx"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (40, 30), colour).save(folder / f"{name}.png")
    return folder


def test_rows_are_what_the_predictor_says(model: Path, photos: Path) -> None:
    result = dsui("predict", model, photos, "--batch", "2")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    files = sorted(photos.iterdir())
    said = OnnxPredictor(model).predict(files)
    assert said.abnormal is not None
    assert said.reason is not None
    assert [row["file"] for row in rows] == [*map(str, files)]
    assert [row["label"] for row in rows] == said.label.tolist()
    assert [float(row["probability"]) for row in rows] == said.max_probability.tolist()
    assert [float(row["uncertainty"]) for row in rows] == said.uncertainty.tolist()
    assert [float(row["log_density"]) for row in rows] == said.log_density.tolist()  # type: ignore[union-attr]
    assert [float(row["foreignness"]) for row in rows] == said.foreignness.tolist()  # type: ignore[union-attr]
    assert [row["decision"] == "reject" for row in rows] == said.abnormal.tolist()
    assert [row["reason"] for row in rows] == said.reason.tolist()
    assert result.exit_code == 0
    assert list(rows[0]) == list(PredictionRow("", scores={"foreignness": 0.0}).record())


def test_what_decides_and_the_verdict_come_first_on_stderr(model: Path, photos: Path) -> None:
    lines = dsui("predict", model, photos).stderr.splitlines()
    assert lines == [
        "Accepting uncertainty up to 0.3 and foreignness up to 0.4: 95.3% of the 300 calibration images, 0.7% of those "
        "wrong. Saved in the file, by coverage 0.95.",
        "Use this model: it knows its errors. Next: dsui predict.",
        "3 images predicted: 1 accepted, 2 rejected.",
    ]
    assert dsui("predict", model, photos, "--quiet").stderr == ""
    write_onnx_model(model, limits=(), changes={"verdict": None})
    assert dsui("predict", model, photos).stderr.splitlines() == [
        "This model was not evaluated, so it is unknown whether to trust it.",
        "3 images predicted.",
    ]


def test_files_hold_what_is_printed(model: Path, photos: Path, tmp_path: Path) -> None:
    for out, option in ((tmp_path / "p.csv", []), (tmp_path / "p.jsonl", ["--json"])):
        printed = dsui("predict", model, photos, *option).stdout
        assert dsui("predict", model, photos, "--out", out).stdout == ""
        assert out.read_text() == printed
    assert [json.loads(line)["reason"] for line in (tmp_path / "p.jsonl").read_text().splitlines()][-1] == "foreign"


def test_bad_files_have_a_row_and_status_one(model: Path, photos: Path) -> None:
    (photos / "cut.png").write_bytes((photos / "red.png").read_bytes()[:60])
    (photos / "text.jpg").write_text("no image")
    result = dsui("predict", model, photos, photos / "absent.png", "--json")
    errors = {Path(row["file"]).name: row["error"] for row in map(json.loads, result.stdout.splitlines())}
    assert {name for name, error in errors.items() if error} == {"cut.png", "text.jpg", "absent.png"}
    assert errors["text.jpg"] == "it is not an image although its name ends in .jpg"
    assert result.exit_code == 1
    assert str(result.exception) == "3 of 6 files cannot be used; their rows say why."


def test_an_interrupted_command_keeps_its_rows(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(paths: list[Path]) -> Iterator[Path]:
        yield from sorted(paths[0].iterdir()) * 10
        raise KeyboardInterrupt

    monkeypatch.setattr("dsui.data.image_files.image_files", interrupted)
    result = dsui("predict", model, photos, "--batch", "5", "--out", tmp_path / "p.csv")
    kept = (tmp_path / "p.csv.part").read_text()
    assert f"stopped after {kept.count('photos')} files; their rows are in {tmp_path / 'p.csv.part'}." in str(
        result.exception
    )
    assert 15 <= kept.count("photos") < 30
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--coverage", "0.9"],
            "so --coverage, --risk and scores cannot change it; choose one with dsui threshold RUN",
        ),
        (["--risk", "0.1"], "the threshold is inside"),
        (["--two"], "the threshold is inside"),
        (["--device", "cuda"], "is computed by ONNX Runtime on the CPU; leave out --device"),
        (["--backbone", "a.b:c"], "holds its network; leave out --backbone"),
        (["--out", "p.txt"], "--out p.txt has the wrong ending"),
    ],
)
def test_what_a_file_cannot_do_is_one_sentence(model: Path, photos: Path, words: list[str], sentence: str) -> None:
    result = dsui("predict", model, photos, *words)
    assert result.stdout == ""
    assert sentence in str(result.exception)


def test_models_that_cannot_be_used_are_one_sentence(model: Path, photos: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    model.write_bytes(whole[: len(whole) // 2])
    assert "is no ONNX file that can be used (it is cut off" in str(dsui("predict", model, photos).exception)
    write_onnx_model(model, features=True)
    refused = CliRunner().invoke(runtime_application.app, ["predict", str(model), str(photos)])
    assert "takes features and no images; use OnnxPredictor(" in str(refused.exception)
    assert "is no file of features by its name" in str(dsui("predict", model, photos).exception)
    assert "there is no file absent.onnx" in str(dsui("predict", "absent.onnx", photos).exception)
    (tmp_path / "empty").mkdir()
    write_onnx_model(model)
    assert "there is no image in" in str(dsui("predict", model, tmp_path / "empty").exception)


def test_the_runtimes_own_command_gives_the_same(model: Path, photos: Path) -> None:
    for option in ([], ["--json"], ["--batch", "1"]):
        own = CliRunner().invoke(runtime_application.app, ["predict", str(model), str(photos), *option])
        assert (own.stdout, own.exit_code) == (dsui("predict", model, photos, *option).stdout, 0)
    refused = CliRunner().invoke(runtime_application.app, ["predict", str(photos), str(photos)])
    assert "is a folder, and dsui-runtime reads files of `dsui export` alone" in str(refused.exception)


def test_the_runtimes_help_fits_80_columns_and_ends_with_an_example() -> None:
    group = typer.main.get_command(runtime_application.app)
    for name in group.commands:  # type: ignore[attr-defined]
        helped = CliRunner().invoke(runtime_application.app, [name, "--help"], env={"COLUMNS": "80"}, prog_name="dsui")
        assert max(map(len, helped.stdout.splitlines())) <= 80
        assert f"Example: dsui {name} model.onnx" in helped.stdout or name == "monitor"


def test_many_images_are_predicted_in_batches(model: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    (tmp_path / "many").mkdir()
    for number in range(300):
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "many" / f"{number:03}.png")
    result = dsui("predict", model, tmp_path / "many", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(row["file"]).stem for row in rows] == [f"{number:03}" for number in range(300)]
