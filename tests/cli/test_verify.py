"""`dsui verify`: the whole shipped experiment once, then what is said of figures that are equal, alike or wrong."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from safetensors import SafetensorError
from typer.testing import CliRunner, Result

from dsui.cli import app, main
from dsui.errors import DsuiError
from dsui.evaluation.cache import ImageSource, OutputCache, StoredOutputs
from dsui.evaluation.results import ResultRow
from dsui.experiments import faults, verification
from dsui.experiments.faults import Finding
from tests.support.command_line import exit_status


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


@pytest.fixture(scope="module")
def findings() -> Result:
    """All faults, caused once."""
    return dsui("--faults", "--json")


def by_promise(findings: Result) -> dict[str, dict[str, Any]]:
    return {check["promise"]: check for check in json.loads(findings.stdout)["checks"]}


def test_the_answer_says_which_promises_held(findings: Result) -> None:
    found = by_promise(findings)
    assert list(found) == list(faults.PROMISES)
    held = all(check["held"] for check in found.values())
    assert (json.loads(findings.stdout)["held"], findings.exit_code) == (held, 0 if held else 1)
    assert all(check["held"] == (check["happened"] == "") for check in found.values())


@pytest.mark.parametrize("promise", faults.PROMISES)
def test_the_promise_holds_here(findings: Result, promise: str) -> None:
    check = by_promise(findings)[promise]
    assert check["held"], check["happened"]


def test_faults_are_lines_and_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = [Finding("code is not run", True)]
    monkeypatch.setattr(faults, "find", lambda *_: found)
    assert exit_status("verify", "--faults") == 0
    assert capsys.readouterr().out == "held      code is not run\nverified: all 1 promises held.\n"
    found.append(Finding("locks lock", False, "it was open"))
    assert exit_status("verify", "--faults") == 1
    printed = capsys.readouterr()
    assert "NOT HELD  locks lock: it was open" in printed.out
    assert "1 of 2 promises did not hold here (locks lock)" in printed.err
    assert exit_status("verify", "--faults", "--device", "cuda") == 2


class Unlocked:
    """A run folder without a lock."""

    @staticmethod
    def resume(*_: object) -> ExitStack:
        return ExitStack()


def append(path: Path, lines: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(lines)


def overwrite(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    with path.open("wb") as stream:
        write(stream)


def nothing(*_: object) -> None:
    """Accepts whatever it is given."""


SAFEGUARDS: dict[str, dict[str, object]] = {
    "weights that were cut off are refused": {"run_facts": nothing, "load_model": nothing},
    "weights with a wrong byte are refused": {"load_model": nothing},
    "a checkpoint with a wrong byte is refused": {"load_state": nothing},
    "a torn line of the log costs no other line": {"append_lines": append},
    "a write that fails half-way leaves the former file": {"write_atomic": overwrite},
    "a run in use by another process is refused": {"RunFolder": Unlocked},
    "code in a checkpoint is not run": {"load_state": lambda path, _: torch.load(path, weights_only=False)},
    "code in a CIFAR file is not run": {"unpickle": lambda path: pickle.loads(path.read_bytes())},  # noqa: S301
}
"""By promise, what keeps it and what takes its place."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> faults.Place:
    place = faults.Place(tmp_path_factory.mktemp("faults"))
    faults.train(place.whole)
    return place


@pytest.mark.parametrize("promise", SAFEGUARDS)
def test_a_missing_safeguard_is_found(monkeypatch: pytest.MonkeyPatch, place: faults.Place, promise: str) -> None:
    for name, instead in SAFEGUARDS[promise].items():
        monkeypatch.setattr(faults, name, instead)
    with pytest.raises(faults.NotHeldError):
        faults.PROMISES[promise](place)


def test_outputs_that_are_taken_as_they_were_left_are_found(
    monkeypatch: pytest.MonkeyPatch, place: faults.Place
) -> None:
    kept: list[StoredOutputs] = []
    get = OutputCache.get

    def first_answer(cache: OutputCache, source: ImageSource) -> StoredOutputs:
        kept.append(kept[0] if kept else get(cache, source))
        return kept[0]

    monkeypatch.setattr(OutputCache, "get", first_answer)
    with pytest.raises(SafetensorError):
        faults.half_written_outputs(place)


def test_other_bits_after_a_kill_are_found(monkeypatch: pytest.MonkeyPatch, place: faults.Place) -> None:
    """As if the resumed training had begun anew from other weights."""
    other = iter([{"w": torch.zeros(1)}, {"w": torch.ones(1)}])
    monkeypatch.setattr(faults, "load_weights", lambda _: (next(other), {}))
    monkeypatch.setattr(faults, "train", lambda *_, **__: None)
    monkeypatch.setattr(faults, "_wait", lambda _: None)
    monkeypatch.setattr(faults, "TRAIN", "import sys; sys.stdin.read()")
    with pytest.raises(faults.NotHeldError, match="1 of 1 tensors differ"):
        faults.killed_training(place)
