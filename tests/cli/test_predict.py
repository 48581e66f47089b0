"""`dsui train` on a folder of digits, then `dsui predict` on others, on noise and on files that are no images."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from dsui.cli import app, main
from dsui.cli.prediction_rows import to_json_lines
from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.runs.files import open_exclusively
from dsui.runtime.rows import PredictionRow

SHAPE = ["--size", "8", "--channels", "1"]
OPTIONS = [*SHAPE, "--backbone", "small", "--recipe", "demo", "--device", "cpu", "--quiet"]


class Place(NamedTuple):
    root: Path
    run: Path

    @property
    def test(self) -> Path:
        return self.root / "test"

    @property
    def noise(self) -> Path:
        return self.root / "noise"


def write(path: Path, pixels: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.numpy()).save(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Digits as files, and a run of ten epochs on 70 % of the thousand training digits."""
    root = tmp_path_factory.mktemp("digits")
    for split in ("train", "test"):
        digits = load("digits", split)
        for number, label in enumerate(digits.labels.tolist()):
            write(root / split / f"digit {label}" / f"{number:04}.png", digits.read(torch.tensor([number]))[0, 0])
    for number, pixels in enumerate(torch.randint(256, (200, 8, 8), generator=torch.Generator().manual_seed(0))):
        write(root / "noise" / f"{number:03}.png", pixels.to(torch.uint8))
    run = tmp_path_factory.mktemp("runs") / "run"
    data = ["--data", f"folder:{root}", "--set", "epochs=10", "--calibration", "0.3", "--out", str(run)]
    assert CliRunner().invoke(app, ["train", *data, *OPTIONS], catch_exceptions=False).exit_code == 0
    return Place(root, run)


class Answer(NamedTuple):
    status: object
    out: str
    err: str

    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))


@pytest.fixture
def dsui(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Predict:
    return Predict(monkeypatch, capsys)


class Predict:
    """The command as a shell would call it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path, command: str = "predict") -> Answer:
        self.monkeypatch.setattr(sys, "argv", ["dsui", command, *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        printed = self.capsys.readouterr()
        return Answer(leaving.value.code, printed.out, printed.err)


def errors(rows: list[dict[str, str]]) -> list[bool]:
    return [row["label"] != Path(row["file"]).parent.name for row in rows]


def test_predictions_open_with_the_verdict_of_the_evaluation_on_stderr(
    dsui: Predict, place: Place, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(place.run, tmp_path / "a run"))
    image = next(place.test.rglob("*.png"))
    before = dsui(run, image, "--device", "cpu")
    assert before.err.startswith(
        f"This model was not evaluated, so it is unknown whether to trust it. Next: dsui evaluate '{run}'.\n"
    )
    foreign = ["--foreign", f"folder:{place.noise}", "--tasks", "misclassification,ood", "--quiet"]
    assert dsui(run, *foreign, command="evaluate").status == 0
    for form in ([], ["--json"]):
        after = dsui(run, image, "--device", "cpu", *form)
        assert re.match(r"(Do not use|Use|Not enough|This) .*model.*: .*\. Next: .*\.\n", after.err)
        assert "was not evaluated" not in after.err
        assert "Next:" not in after.out
    assert dsui(run, image, "--device", "cpu", "--quiet").err == ""


def test_digits_are_accepted_and_noise_and_files_that_are_none_are_not(
    dsui: Predict, place: Place, tmp_path: Path
) -> None:
    whole = next(place.test.rglob("*.png")).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("this is no image")
    answer = dsui(place.run, place.test, place.noise, tmp_path, "--coverage", "0.95", "--device", "cpu")
    rows = answer.rows()
    assert list(rows[0]) == list(PredictionRow("").record())
    digits, noise, bad = rows[:797], rows[797:997], rows[997:]
    assert [Path(row["file"]).name for row in bad] == ["cut.png", "text.png"]
    assert "truncated" in bad[0]["error"]
    assert bad[1]["error"] == "it is not an image although its name ends in .png"
    assert not any(value for row in bad for name, value in row.items() if name not in {"file", "error"})
    accepted = [row["decision"] == "accept" for row in digits]
    # 0.935 when written. 300 calibration and 797 test images: the deviation of the share is 0.015, and this is four
    assert np.mean(accepted) > 0.95 - 0.06
    assert np.mean([row["decision"] == "reject" for row in noise]) > 0.85  # 0.97 when written
    assert np.mean(errors(digits)) < 0.07  # 0.029 when written
    assert all(float(row["log_density"]) < 0 for row in digits + noise)
    assert answer.status == 1
    assert "dsui: 2 of 999 files cannot be used; their rows say why." in answer.err
    assert "of the 300 calibration images" in answer.err


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.99])
def test_the_asked_coverage_is_kept_on_new_images(dsui: Predict, place: Place, coverage: float) -> None:
    answer = dsui(place.run, place.test, "--coverage", str(coverage))
    accepted = np.mean([row["decision"] == "accept" for row in answer.rows()])
    deviation = np.sqrt(coverage * (1 - coverage) * (1 / 797 + 1 / 302))
    assert abs(accepted - coverage) < 4 * deviation + 1 / 301  # four deviations, and what rounding to a rank adds
    assert answer.status == 0


@pytest.mark.parametrize("risk", [0.05, 0.1])
def test_the_asked_risk_is_kept_on_new_images(dsui: Predict, place: Place, risk: float) -> None:
    rows = dsui(place.run, place.test, "--risk", str(risk)).rows()
    kept = [row for row in rows if row["decision"] == "accept"]
    assert np.mean(errors(kept)) < risk  # 0.008 and 0.029 when written: the bound is on the safe side
    assert len(kept) > 600  # 714 and 797 when written


def test_rows_are_what_the_predictor_says(dsui: Predict, place: Place) -> None:
    answer = dsui(place.run, place.test / "digit 3", "--json", "--quiet", "--batch", "32")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    files = sorted((place.test / "digit 3").iterdir())
    said = Predictor.load(place.run).predict(files, batch=32)
    assert [row["file"] for row in rows] == [*map(str, files)]
    assert [row["label"] for row in rows] == said.label.tolist()
    assert [row["probability"] for row in rows] == said.max_probability.tolist()
    assert [row["uncertainty"] for row in rows] == said.uncertainty.tolist()
    assert said.log_density is not None
    assert [row["log_density"] for row in rows] == said.log_density.tolist()
    assert {row["decision"] for row in rows} == {row["error"] for row in rows} == {None}
    assert answer.err == ""


def test_a_file_holds_what_else_is_printed(dsui: Predict, place: Place, tmp_path: Path) -> None:
    chosen: list[str | Path] = [place.run, place.noise, "--coverage", "0.9"]
    printed = dsui(*chosen).out
    answer = dsui(*chosen, "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == printed
    assert answer.out == ""
    assert "200 images predicted: " in answer.err
    assert dsui(*chosen, "--out", tmp_path / "p.jsonl", "--quiet").err == ""
    assert (tmp_path / "p.jsonl").read_text() == dsui(*chosen, "--json").out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.jsonl"]


def test_an_interrupted_command_keeps_its_rows_and_the_former_file(
    dsui: Predict, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(paths: list[Path]) -> Iterator[Path]:
        yield from sorted(paths[0].iterdir())[:55]
        raise KeyboardInterrupt

    monkeypatch.setattr("dsui.data.image_files.image_files", interrupted)
    (tmp_path / "p.csv").write_text("former")
    chosen: list[str | Path] = [place.run, place.noise, "--batch", "10"]
    answer = dsui(*chosen, "--out", tmp_path / "p.csv")
    assert answer.status == 130
    kept = (tmp_path / "p.csv.part").read_text()
    assert f"stopped after {kept.count('noise')} files; their rows are in {tmp_path / 'p.csv.part'}." in answer.err
    assert kept.startswith("file,label")
    assert kept.endswith("\n")
    assert 30 <= kept.count("noise") < 55
    assert (tmp_path / "p.csv").read_text() == "former"
    answer = dsui(*chosen)
    assert answer.out == kept
    assert f"stopped after {kept.count('noise')} files; their rows are printed." in answer.err


@pytest.mark.parametrize("printed", [False, True])
def test_what_was_written_can_be_read_while_it_grows(
    dsui: Predict, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: bool
) -> None:
    seen, growing = [], tmp_path / ("printed" if printed else "p.csv.part")

    def watched(paths: list[Path]) -> Iterator[Path]:
        for file in sorted(paths[0].iterdir()):
            seen.append(growing.read_text().count("\n") if growing.exists() else 0)
            yield file

    monkeypatch.setattr("dsui.data.image_files.image_files", watched)
    with (tmp_path / "printed").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        where: list[str | Path] = [] if printed else ["--out", tmp_path / "p.csv"]
        dsui(place.run, place.noise, "--batch", "10", *where)
    assert seen[100] >= 71  # a header and seven of ten batches; two and a bit are decoded ahead
    assert seen == sorted(seen)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_a_disk_that_is_full_in_the_middle_of_a_row_is_told(place: Place, tmp_path: Path, name: str) -> None:
    few = sorted(place.noise.iterdir())[:100]  # one batch, so that no later write meets the full disk
    words = ["predict", place.run, *few, "--device", "cpu", "--out", tmp_path / name]
    result = subprocess.run(
        [sys.executable, "-m", "dsui", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert result.returncode == 1
    assert f"{tmp_path / name} cannot be written (File too large); choose another --out." in result.stderr
    assert not (tmp_path / name).exists()


def test_nothing_to_predict_is_told_and_leaves_no_file(dsui: Predict, place: Place, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = dsui(place.run, tmp_path / "empty", "--out", tmp_path / "p.csv")
    assert (answer.status, answer.out) == (1, "")
    assert answer.err == f"dsui: there is no image in {tmp_path / 'empty'}; name images or folders of them.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_what_is_no_number_is_null_in_json() -> None:
    text = to_json_lines([PredictionRow("a.png", "0", math.nan, math.inf)])
    assert json.loads(text, parse_constant=pytest.fail)["probability"] is None


def test_names_that_are_no_text_are_written_as_they_are(dsui: Predict, place: Place, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff, \xc3\xa9.png"
    with open(odd, "wb") as stream:
        stream.write(next(place.noise.iterdir()).read_bytes())
    assert dsui(place.run, tmp_path, "--out", tmp_path / "p.csv").status == 0
    assert b'"' + odd + b'",digit ' in (tmp_path / "p.csv").read_bytes()
    assert json.loads(dsui(place.run, tmp_path, "--json").out)["file"] == os.fsdecode(odd)


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["--coverage", "0.9", "--risk", "0.1"], 2, "choose --coverage or --risk, not both"),
        (["--coverage", "95"], 2, "'--coverage': 95 is not a share of the images below 1; write 0.95 for 95 %"),
        (["--coverage", "1"], 2, "1 is not a share of the images below 1; write one as 0.05 or 0.95"),
        (["--risk", "0.001"], 1, "cannot assure a risk of 0.001"),
        (["--out", "p.txt"], 2, "--out p.txt has the wrong ending"),
        (["--out", "p.csv", "--json"], 2, "name a file ending in .jsonl"),
        (["--out", "no/such/p.csv"], 1, "no/such/p.csv cannot be written (No such file or directory)"),
        (["--batch", "0"], 2, "--batch"),
        (["--device", "tpu"], 2, "no device 'tpu'; did you mean"),
    ],
)
def test_a_mistake_is_one_sentence_and_its_status(
    dsui: Predict, place: Place, words: list[str], status: int, sentence: str
) -> None:
    answer = dsui(place.run, place.noise, *words)
    assert (answer.status, answer.out) == (status, "")
    assert answer.err.startswith("dsui: ")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_own_images_are_calibrated_with_a_tenth_unless_told_otherwise(
    dsui: Predict, place: Place, tmp_path: Path
) -> None:
    """And published ones are not, as they come with a split that all compare on."""
    short = ["--set", "epochs=1", *OPTIONS]
    data = f"folder:{place.root}"
    assert dsui("--data", data, "--out", tmp_path / "own", *short, command="train").status == 0
    assert len(Predictor.load(tmp_path / "own").calibration.errors) == 100
    assert dsui("--data", data, "--calibration", "0", "--out", tmp_path / "all", *short, command="train").status == 0
    refused = dsui("--data", "digits", "--out", tmp_path / "digits", *short, command="train")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "are for folder:PATH; digits is used as published" in refused.err
    short = [word for word in short if word not in SHAPE]
    assert dsui("--data", "digits", "--out", tmp_path / "digits", *short, command="train").status == 0
    for name in ("all", "digits"):
        answer = dsui(tmp_path / name, place.noise, "--coverage", "0.9")
        assert (answer.status, answer.out) == (1, "")
        assert "trained without calibration images" in answer.err
        assert "train it with --calibration 0.1" in answer.err
        assert dsui(tmp_path / name, place.noise, "--quiet").status == 0


def test_help_ends_with_an_example(dsui: Predict) -> None:
    answer = dsui("--help")
    assert "Example: dsui predict runs/mine photos --coverage 0.95 --out predictions.csv" in answer.out


def test_a_file_that_another_process_writes_is_left_to_it(dsui: Predict, place: Place, tmp_path: Path) -> None:
    with open_exclusively(tmp_path / "p.csv.part") as other:
        other.write(b"rows of the other")
        answer = dsui(place.run, place.noise, "--out", tmp_path / "p.csv")
        assert answer.status == 1
        assert f"{tmp_path / 'p.csv'} is being written by another process; wait until it ends, or choose" in answer.err
        assert (tmp_path / "p.csv.part").read_text() == "rows of the other"
    assert dsui(place.run, place.noise, "--out", tmp_path / "p.csv").status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv"]


def test_a_part_that_is_a_link_is_not_followed(dsui: Predict, place: Place, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("years of work")
    (tmp_path / "p.csv.part").symlink_to(tmp_path / "precious")
    answer = dsui(place.run, place.noise, "--out", tmp_path / "p.csv")
    assert f"{tmp_path / 'p.csv'} cannot be written (p.csv.part is a link); choose another --out." in answer.err
    assert (tmp_path / "precious").read_text() == "years of work"
