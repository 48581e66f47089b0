"""A log is read as far as it is whole, and what was skipped is reported."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsui.runs.log import read_log

WHOLE = b'{"epoch": 0, "step": 3}\n{"epoch": 1, "step": 6}\n'
ROWS = [{"epoch": 0, "step": 3}, {"epoch": 1, "step": 6}]


@pytest.mark.parametrize(
    ("content", "rows", "damaged", "torn"),
    [
        (b"", [], [], False),
        (WHOLE, ROWS, [], False),
        (WHOLE[:-1], ROWS[:1], [], True),  # whole to a parser, yet its end was never written
        (WHOLE + b'{"epoch": 2, "st', ROWS, [], True),
        (b"\x00\x00\n" + WHOLE + b"[1]\n\n", ROWS, [1, 4, 5], False),
        (b"\xff\n" + WHOLE + b"7", ROWS, [1], True),
    ],
)
def test_rows_that_are_whole_are_read_and_others_counted(
    tmp_path: Path, content: bytes, rows: list[object], damaged: list[int], torn: bool
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    log = read_log(path)
    assert (log.rows, log.damaged, log.torn) == (rows, damaged, torn)
    skipped = len(damaged) + torn
    assert log.problems == ([f"Lines of {path} that cannot be read: {skipped}."] if skipped else [])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(WHOLE)))
def test_a_kill_at_any_byte_costs_the_line_it_fell_into(tmp_path: Path, length: int) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(WHOLE[:length])
    log = read_log(path)
    assert log.rows == ROWS[: WHOLE[:length].count(b"\n")]
    assert b"".join(log.lines) == WHOLE[: WHOLE.rfind(b"\n", 0, length) + 1]
    assert not log.damaged


def test_a_file_that_cannot_be_read_is_a_problem_and_not_an_error(tmp_path: Path) -> None:
    log = read_log(tmp_path / "none")
    assert log.rows == []
    assert isinstance(log.error, FileNotFoundError)
    assert log.problems == [f"{tmp_path / 'none'} cannot be read (No such file or directory)."]


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b'{"step": null}',
        b'{"epoch": "0"}',
        b'{"step": -1}',
        b'{"seconds": true}',
        b'{"loss": []}',
        b'{"held_out_accuracy": 1.5}',
        b'{"held_out_accuracy": "0.5"}',
        b"[" * 9999,
    ],
)
def test_a_line_of_another_kind_is_damaged(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(WHOLE + line + b"\n")
    log = read_log(tmp_path / "log.jsonl")
    assert (log.rows, log.damaged) == (ROWS, [3])


def test_epochs_are_the_rows_with_all_figures(tmp_path: Path) -> None:
    full = {"epoch": 0, "step": 3, "loss": 1.5, "cross_entropy": 1, "accuracy": 0.5, "seconds": 2.0, "alive": [0.5]}
    rows: list[dict[str, object]] = [
        full,
        {**full, "held_out_accuracy": 0.25},
        {"epoch": 1, "step": 6},
        {**full, "cross_entropy": "x"},
        {**full, "loss": float("nan")},
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    log = read_log(tmp_path / "log.jsonl")
    assert len(log.rows) == 5
    assert [row["loss"] for row in log.epochs] == [1.5, 1.5, pytest.approx(float("nan"), nan_ok=True)]


def test_a_pipe_is_a_problem_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    (problem,) = read_log(tmp_path / "log.jsonl").problems
    assert problem == f"{tmp_path / 'log.jsonl'} cannot be read (it is a pipe and not a file)."
