"""Folders and classes with the worst names a file system takes, through every command that reads them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import Result

from dsui.errors import RunError
from dsui.report import run_section
from tests.support.command_line import dsui, exit_status

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse these names")
CLASSES = [b"caf\xe9", b"<img src=x onerror=alert(1)>", b"\x1b[31mred\x1b]0;x\x07", b"=1+1", b"-0.5", b"@S [bold]a\nb"]
TITLE = "<script>alert(1)</script>"
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class Nasty:
    def __init__(self, folder: Path) -> None:
        self.images, self.run, self.folder = folder / "na[/b]me", folder / "mk[" / "b]\x1b[31m", folder
        generator = np.random.default_rng(0)
        for split, count in (("train", 8), ("test", 3)):
            for number, name in enumerate(CLASSES):
                place = self.images / split / os.fsdecode(name)
                place.mkdir(parents=True)
                for image in range(count):
                    pixels = generator.integers(0, 60, (8, 8), dtype=np.uint8)
                    pixels[number] += 150
                    Image.fromarray(pixels).save(place / f"={image}[red].png")
        settings = ["--backbone", "small", "--recipe", "demo", "--set", "epochs=2", "--set", "batch=16"]
        self.trained = dsui(
            *("train", "--data", f"folder:{self.images}", *settings, "--method", "msp", "--device", "cpu"),
            *("--calibration", "0.2", "--out", self.run),
        )
        self.evaluated = dsui("evaluate", self.run, "--tasks", "misclassification")


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nasty]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsui.evaluation.sources.NOISE_IMAGES", 64)  # saves time
        yield Nasty(tmp_path_factory.mktemp("nasty"))


def check(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    assert not FORBIDDEN.search(result.stdout + result.stderr), result.output
    return result


def test_training_and_evaluation_name_the_run(nasty: Nasty) -> None:
    assert "mk[/b]�[31m/model.safetensors" in check(nasty.trained).stdout
    assert "mk[/b]�[31m/results.jsonl" in "".join(check(nasty.evaluated).output.split())


def test_tables_name_the_data(nasty: Nasty) -> None:
    data = f"folder:{nasty.images}"
    assert "na[/b]me" in check(dsui("data", "check", data)).stdout
    for form in ("terminal", "markdown", "latex", "csv"):
        check(dsui("compare", nasty.run, "--reference", "msp", "--format", form))
    assert "na[/b]me" in json.loads(dsui("compare", nasty.run, "--reference", "msp", "--json").stdout)["title"]
    assert "b]�[31m: what" in check(dsui("threshold", nasty.run, "--risk", "", "--foreign", f"{data}/test")).stdout


def test_error_sentences_name_the_run_on_one_line(nasty: Nasty, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("evaluate", nasty.run / "a\nb\x1b]0;title\x07\udce9") == 1
    assert "mk[/b]�[31m/a b�]0;title��" in capsys.readouterr().err


def test_a_run_whose_weights_could_not_be_read_again_is_refused_before_training(nasty: Nasty) -> None:
    out = nasty.folder / "o\udce9"
    words = ("train", "--data", "digits", "--backbone", "small", "--recipe", "demo", "--method", "msp", "--out", out)
    with pytest.raises(RunError, match="is no text in UTF-8"):
        raise dsui(*words).exception or AssertionError
    assert not out.exists()


def test_predictions_hold_the_exact_names_and_no_formula(nasty: Nasty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(nasty.images / "test")
    for form in ("csv", "jsonl"):
        check(dsui("predict", nasty.run, ".", "--coverage", "0.5", "--out", nasty.folder / f"x.{form}"))
    text = (nasty.folder / "x.csv").read_bytes().decode(errors="surrogateescape")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 3 * len(CLASSES)
    assert all(not cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())
    assert all(math.isfinite(float(row["uncertainty"])) for row in rows)  # also below zero
    told = [json.loads(line) for line in (nasty.folder / "x.jsonl").read_text().splitlines()]
    names = {os.fsdecode(name) for name in CLASSES}
    assert {row["label"] for row in told} <= names
    assert {row["label"].removeprefix("'") for row in rows} == {row["label"] for row in told}
    assert all(Path(row["file"]).is_file() for row in told)
    monkeypatch.chdir(nasty.images / "test" / "=1+1")
    (first, *_) = csv.DictReader(io.StringIO(dsui("predict", nasty.run, "=0[red].png").stdout))
    assert first["file"] == "'=0[red].png"


def test_a_report_shows_the_names_and_contains_no_element_of_theirs(
    nasty: Nasty, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("_foreign", "_densities", "_features", "_training"):  # these take long
        monkeypatch.setattr(run_section, part, lambda _: None)
    monkeypatch.setattr(run_section, "_errors", run_section._classes)
    page, data = nasty.folder / "report.html", f"folder:{nasty.images}/test"
    result = check(dsui("report", nasty.run, "--out", page, "--foreign", data, "--title", TITLE))
    assert "Wrote" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert not FORBIDDEN.search(text)
    found = Elements(text)
    assert "script" not in found.names
    assert not [name for name in found.attributes if name.startswith("on")]
    assert "caf�" in found.text
    assert "<img src=x onerror=alert(1)>" in found.text
    assert TITLE in found.text


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data
