"""A log is read as far as it is whole, and what was skipped is reported."""

from __future__ import annotations

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
