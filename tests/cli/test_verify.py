"""`dsui verify`: the whole shipped experiment once, then what is said of figures that are equal, alike or wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from dsui.cli import app, main
from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow
from dsui.experiments import verification


def dsui(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


def shipped(change: float = 0.0, method: str = "dsui") -> list[ResultRow]:
    """The shipped rows of the seeds that are run again, the metrics of one method changed."""
    return [
        replace(row, metrics={name: value + change for name, value in row.metrics.items()})
        if row.method == method
        else row
        for row in verification.shipped_rows()
        if row.seed in verification.SEEDS
    ]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> list[ResultRow]:
    """Rows that a run gives without running; a test fills them in."""
    rows: list[ResultRow] = []
    monkeypatch.setattr(verification, "run_experiment", lambda *_: rows)
    return rows


def test_the_shipped_experiment_passes_here() -> None:
    result = dsui("--json")
    assert result.exit_code == 0, "if the figures are meant to change: python -m dsui.experiments.verification"
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["verified"] is True
    assert {check["verdict"] for check in found["checks"]} <= {"equal", "alike"}
    assert all(len(check["here"]) == len(verification.SEEDS) for check in found["checks"])
    assert all(check["low"] < check["shipped_mean"] < check["high"] for check in found["checks"])
    assert found["versions"]["torch"] == torch.__version__


def test_equal_figures_are_a_table_and_a_sentence(pretend: list[ResultRow]) -> None:
    pretend += shipped()
    result = dsui()
    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith("verified: all 15 figures equal the shipped ones.")
    assert "…" not in result.stdout  # nothing is cut off at 80 columns
    (line,) = [line for line in result.stdout.splitlines() if "noise, log-density" in line]
    values = [
        row.metrics["auroc"]
        for row in shipped()
        if (row.method, row.task, row.score) == ("dsui", "noise", "log_density")
    ]
    assert line.split()[2:4] == [f"{100 * sum(values) / len(values):.2f}"] * 2


def test_figures_within_chance_are_verified_and_told(pretend: list[ResultRow]) -> None:
    pretend += shipped(change=-0.0015)
    result = dsui()
    assert result.exit_code == 0
    assert "verified: 5 of 15 figures equal the shipped ones" in result.stdout
    assert result.stdout.count("alike\n") + result.stdout.count("alike  ") == 10


def test_wrong_figures_are_named_with_what_it_may_mean(
    pretend: list[ResultRow], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend += [replace(row, versions={"torch": "0.1"}) for row in shipped(change=-0.4, method="msp")]
    monkeypatch.setattr(sys, "argv", ["dsui", "verify"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    said, error = capsys.readouterr()
    assert said.count("differs") == 5
    assert "…" not in said
    assert "not verified: 5 of 15 figures" in error
    assert "msp errors, Max.P." in error
    assert "here torch 0.1" in error


def test_quiet_says_nothing_but_what_is_wrong(pretend: list[ResultRow]) -> None:
    pretend += shipped()
    assert dsui("--quiet").output == ""
    pretend[:] = shipped(change=-0.2)
    with pytest.raises(DsuiError, match="not verified"):
        CliRunner().invoke(app, ["verify", "--quiet"], catch_exceptions=False)


def test_a_missing_figure_is_not_verified(pretend: list[ResultRow]) -> None:
    pretend += [row for row in shipped() if row.task != "noise"]
    with pytest.raises(DsuiError, match=r"not verified: 3 of 15 .* dsui noise, log-density"):
        CliRunner().invoke(app, ["verify"], catch_exceptions=False)


def test_json_holds_the_verdict_also_where_it_is_bad(
    pretend: list[ResultRow], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend += shipped(change=-0.2)
    monkeypatch.setattr(sys, "argv", ["dsui", "verify", "--json"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert json.loads(capsys.readouterr().out)["verified"] is False


def test_help_ends_with_an_example() -> None:
    assert "Example: dsui verify" in dsui("--help").stdout
