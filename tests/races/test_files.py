"""Several real processes on the same files: locks, appended lines, and files written whole.

Every test has a short form and, with `pytest -m soak`, a long one.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dsui.errors import RunError
from dsui.evaluation.results import append, read
from dsui.runs.files import append_lines, lock_or_refuse, remove_lock, wait_for_lock, write_atomic
from dsui.runs.folder import RunFolder
from tests.runs.test_folder import CONFIG
from tests.support.racing import at_once, forks, rounds, started
from tests.support.result_row import ROW

pytestmark = forks


@rounds(20, 400)
def test_lines_of_several_processes_are_never_torn_or_lost(tmp_path: Path, times: int) -> None:
    path = tmp_path / "lines"

    def append(number: int) -> None:
        for line in range(times):
            append_lines(path, b"".join(b"%d %d %s\n" % (number, line, b"x" * 20_000) for _ in range(3)))

    assert at_once(append, 4) == [0, 0, 0, 0]
    found = [line.split(b" ")[:2] for line in path.read_bytes().split(b"\n")[:-1]]
    assert len(found) == 4 * times * 3, "no line is empty, none is missing"
    for number in range(4):
        assert [int(line) for who, line in found if int(who) == number] == sorted(3 * list(range(times)))


@rounds(6, 150)
def test_lines_beside_a_process_that_is_killed_while_it_appends_are_whole(tmp_path: Path, times: int) -> None:
    path, chance = tmp_path / "lines", random.Random(0)  # noqa: S311
    line = json.dumps({"text": "x" * 50_000}).encode() + b"\n"

    def append_for_ever(_: int) -> None:
        while True:
            append_lines(path, line)

    def append_some(_: int) -> None:
        for _ in range(10):
            append_lines(path, line)

    for _ in range(times):
        killed = started(append_for_ever, 0)
        other = started(append_some, 1)
        time.sleep(chance.uniform(0, 0.03))
        killed.kill()
        for each in (killed, other):
            each.join()
        assert other.exitcode == 0
    lines = path.read_bytes().split(b"\n")
    whole = [each for each in lines if each == line[:-1]]
    torn = [each for each in lines if each not in {line[:-1], b""}]
    assert len(whole) >= 10 * times
    assert len(torn) <= times, "a kill tears its own last line at most"
    assert all(line.startswith(each) for each in torn)


@rounds(60, 2000)
def test_a_lock_has_one_holder_also_while_its_file_comes_and_goes(tmp_path: Path, times: int) -> None:
    """Each process takes the lock, works where only one may be, and removes the lock with its file."""
    lock, inside = tmp_path / ".lock", tmp_path / "inside"

    def take_turns(_: int) -> None:
        entered = 0
        while entered < times:
            try:
                held = lock_or_refuse(lock)
            except BlockingIOError:
                continue
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails where another process is inside
            inside.unlink()
            remove_lock(held, lock)
            entered += 1

    assert at_once(take_turns, 3) == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


@rounds(60, 2000)
def test_those_who_wait_for_a_lock_enter_one_after_another(tmp_path: Path, times: int) -> None:
    lock, number = tmp_path / ".lock", tmp_path / "number"
    number.write_text("0")

    def count(_: int) -> None:
        for _ in range(times):
            with wait_for_lock(lock):
                number.write_text(str(int(number.read_text()) + 1))

    assert at_once(count, 3) == [0, 0, 0]
    assert number.read_text() == str(3 * times)


@rounds(25, 800)
def test_a_file_that_several_processes_write_is_always_one_of_theirs(tmp_path: Path, times: int) -> None:
    """Some are killed while they write; a reader meets no half file, and none of the parts stays."""
    path, chance = tmp_path / "report.html", random.Random(0)  # noqa: S311
    write_atomic(path, lambda stream: stream.write(b"0" * 300_000))

    def write(number: int) -> None:
        for _ in range(times):
            write_atomic(path, lambda stream: stream.write(b"%d" % number * 300_000), durable=False)

    def write_for_ever(number: int) -> None:
        while True:
            write(number)

    writers = [started(write, number) for number in (1, 2)]
    kills = 0
    while any(each.is_alive() for each in writers) or kills < 3:
        killed = started(write_for_ever, 3)
        time.sleep(chance.uniform(0.005, 0.03))
        killed.kill()
        killed.join()
        kills += 1
        content = path.read_bytes()
        assert len(content) == 300_000
        assert len(set(content)) == 1
    assert [each.exitcode for each in writers] == [0, 0]
    write_atomic(path, lambda stream: stream.write(b"last"))
    assert list(tmp_path.iterdir()) == [path]


@rounds(8, 300)
def test_a_run_that_does_not_begin_and_a_third_process_leave_one_whole_run(tmp_path: Path, times: int) -> None:
    """While one process discards its run, others begin one in the same folder: one of them has it, and has it whole."""

    def begin(_: int) -> None:
        with suppress(RunError), RunFolder.create(tmp_path / "run", CONFIG) as folder:
            folder.discard()

    def begin_until_held(_: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with RunFolder.create(tmp_path / "run", CONFIG) as folder:
                    os.close(os.open(tmp_path / "owner", os.O_CREAT | os.O_EXCL))  # fails where there are two
                    folder.save_state({"steps": 1})
                    assert (tmp_path / "run" / "config.yaml").exists()
                    return
            except RunError as error:
                if "already holds a run" in str(error):
                    return
                if "in use by" not in str(error):
                    raise

    for number in range(times):
        beginners: list[Callable[[int], None]] = [begin, begin, begin_until_held, begin_until_held]
        assert at_once(beginners, 4) == [0, 0, 0, 0]
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
            ".lock",
            "config.yaml",
            "log.jsonl",
            "state.pt",
        ]
        (tmp_path / "run").rename(tmp_path / f"run-{number}")
        (tmp_path / "owner").unlink()


@rounds(10, 200)
def test_rows_of_several_evaluations_are_all_there(tmp_path: Path, times: int) -> None:
    path = tmp_path / "results.jsonl"

    def evaluate(number: int) -> None:
        for _ in range(times):
            append(path, [replace(ROW, seed=number)] * 40)

    assert at_once(evaluate, 3) == [0, 0, 0]
    found, problems = read([path])
    assert problems == []
    assert sorted(each.seed for each in found) == sorted([0, 1, 2] * 40 * times)
