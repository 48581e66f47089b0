from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

import dsui
from dsui.cli import app, main
from dsui.cli.demo import verdict
from dsui.errors import DsuiError

runner = CliRunner()


def test_demo_prints_every_head_score_and_figure_with_its_deviation() -> None:
    result = runner.invoke(app, ["demo", "--seeds", "2"])
    assert result.exit_code == 0
    for word in (
        "linear",
        "DS-UI",
        "Max.P.",
        "Ent.",
        "energy",
        "log-density",
        "AUROC",
        "AUPR",
        "AURC",
        "photos",
        "noise",
    ):
        assert word in result.output
    rows = [line for line in result.output.splitlines() if "Max.P." in line or "log-density" in line]
    assert len(rows) == 3
    assert all(len(re.findall(r"\d+\.\d±\d+\.\d", row)) == 5 for row in rows)
    assert "of 15 comparisons" in result.output
    assert "a demonstration, not a proof" in " ".join(result.output.split())


def test_the_verdict_names_what_is_lost() -> None:
    better = dict.fromkeys(("error_auroc", "error_aupr", "photos_auroc", "noise_auroc"), 0.9) | {"error_aurc": 0.1}
    worse = better | {"noise_auroc": 0.8, "error_aurc": 0.2}
    text = verdict({"linear": [{"energy": better}], "DS-UI": [{"energy": worse | {"error_auroc": 0.95}}]})
    assert "in 1 of 5" in text
    for lost in ("errors AURC by energy", "noise AUROC by energy", "photos AUROC by energy"):
        assert lost in text
    assert "errors AUROC" not in text


def test_help_starts_with_a_verb_and_shows_an_example() -> None:
    for arguments in ([], ["demo"]):
        text = runner.invoke(app, [*arguments, "--help"]).output
        assert "Example: dsui demo" in text


def test_version_is_printed() -> None:
    assert runner.invoke(app, ["--version"]).output == f"dsui {dsui.__version__}\n"


def test_wrong_usage_exits_with_two() -> None:
    assert runner.invoke(app, ["demo", "--seeds", "one"]).exit_code == 2
    assert runner.invoke(app, ["demo", "--seeds", "1"]).exit_code == 2
    assert runner.invoke(app, ["dmeo"]).exit_code == 2


def test_a_mistake_is_one_sentence_and_exit_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise DsuiError("runs/a does not exist; train it first.")

    monkeypatch.setattr("dsui.cli.app", fail)
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 1
    assert capsys.readouterr().err == "dsui: runs/a does not exist; train it first.\n"
