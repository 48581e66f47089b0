"""Runs the commands and the Python of the user guide, in the order of the page."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dsui.runs.acceptance import Thresholds
from tests.support.fences import ROOT, fences, run_commands, run_python

GUIDE = ROOT / "docs" / "guide.md"
TEST_DIGITS = 797


def decisions(file: str) -> list[str]:
    with Path(file).open() as rows:
        return [row["decision"] for row in csv.DictReader(rows)]


def test_every_block_of_the_guide_runs_and_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for fence in fences(GUIDE):
        match fence.language:
            case "python":
                run_python(GUIDE, fence, names)
            case "bash":
                printed += run_commands(fence.text)
            case other:
                assert other == "text"
    assert "mine" in printed
    assert "plain" in printed
    assert "frozen-plain" in printed
    assert "tuned" in printed
    assert len(decisions("predictions.csv")) == TEST_DIGITS
    # 95 % are promised on average over the calibration images; 0.05 is four deviations of a share with 300 of them
    assert decisions("predictions.csv").count("accept") / TEST_DIGITS == pytest.approx(0.95, abs=0.05)
    # the same promise, for the head on features
    assert decisions("frozen.csv").count("accept") / TEST_DIGITS == pytest.approx(0.95, abs=0.05)
    assert decisions("few-errors.csv").count("accept") > TEST_DIGITS / 2
    assert names["accuracy"] > 0.9  # 95.5 % when written
    assert all(value.grad is not None for value in names["head"].parameters())
    assert isinstance(names["predictor"].chosen, Thresholds)
    assert 0 < len(names["doubtful"]) < TEST_DIGITS / 5
    assert capsys.readouterr().out.count("Threshold") == 3
    last = json.loads(Path("runs/two/log.jsonl").read_text().splitlines()[-1])
    assert last["accuracy"] > 0.9


def test_the_guide_has_no_command_outside_of_its_fences() -> None:
    lines = GUIDE.read_text().splitlines()
    assert not [line for line in lines if line.startswith(("    dsui ", "    torchrun "))]
