"""`dsui info` prints what it can find out and never fails."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dsui import __version__
from dsui.cli import app
from dsui.data.registry import DATASETS


def facts_of(*arguments: str) -> dict[str, dict[str, str | None]]:
    result = CliRunner().invoke(app, ["info", "--json", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    facts: dict[str, dict[str, str | None]] = json.loads(result.stdout)
    return facts


def test_versions_devices_and_data_sets_are_printed(tmp_path: Path) -> None:
    (tmp_path / "test_32x32.mat").touch()
    facts = facts_of("--root", str(tmp_path))
    assert facts["versions"]["dsui"] == __version__
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["versions"]["numpy"] == np.__version__
    assert (facts["versions"]["python"] or "").startswith(platform.python_version())
    assert (facts["machine"]["GPUs"] is None) == (not torch.cuda.is_available())
    assert list(facts["data"]) == ["folder", *DATASETS]
    assert facts["data"]["folder"] == str(tmp_path)
    assert facts["data"]["svhn"] == f"test in {tmp_path}"
    assert facts["data"]["cifar10"] is None
    assert facts["data"]["digits"] == "train, test (comes with dsui)"


def test_a_person_reads_the_same_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["info"], catch_exceptions=False).stdout
    for value in (__version__, torch.__version__, platform.python_version(), "cifar10", "versions", "machine", "data"):
        assert value in shown


def test_an_unknown_fact_says_why_and_the_others_are_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("the driver is too old")

    monkeypatch.setattr("dsui.evaluation.results.commit", broken)
    monkeypatch.setattr(torch.cuda, "is_available", broken)
    monkeypatch.setattr("dsui.data.info.DatasetInfo.present", broken)
    facts = facts_of("--root", str(tmp_path / "nowhere"))
    assert facts["versions"]["commit"] == "unknown (RuntimeError: the driver is too old)"
    assert facts["machine"]["GPUs"] == facts["data"]["svhn"] == facts["versions"]["commit"]
    assert facts["data"]["folder"] == f"{tmp_path / 'nowhere'} (does not exist)"
    assert facts["versions"]["dsui"] == __version__
