"""Files on disk are whole or as they were, lines are appended whole, and a lock keeps a second process out."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from dsui.errors import RunError
from dsui.runs.files import (
    append_lines,
    lock_or_refuse,
    open_exclusively,
    remove_lock,
    wait_for_lock,
    write_atomic,
    write_bytes,
)


def half_then(error: Exception) -> Callable[[IO[bytes]], object]:
    """A writer that fails after half of its content."""

    def write(stream: IO[bytes]) -> None:
        stream.write(b"half")
        raise error

    return write


def test_a_writer_that_fails_leaves_the_former_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"former")
    with pytest.raises(RunError, match=r"file could not be written \(No space left on device\)"):
        write_atomic(path, half_then(OSError(28, "No space left on device")))
    with pytest.raises(ZeroDivisionError):
        write_atomic(path, half_then(ZeroDivisionError()))
    assert path.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_the_disk_inside_another_one_is_recognised(tmp_path: Path) -> None:
    def write(_: IO[bytes]) -> None:
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            raise RuntimeError("as torch's zip writer says it")  # noqa: B904 (torch raises it without a cause)

    with pytest.raises(RunError, match="No space left on device"):
        write_atomic(tmp_path / "file", write)
    with pytest.raises(RuntimeError, match="not the disk"):
        write_atomic(tmp_path / "file", half_then(RuntimeError("not the disk")))


def test_the_former_file_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"former")

    def write(stream: IO[bytes]) -> None:
        stream.write(b"new")
        assert path.read_bytes() == b"former"

    write_atomic(path, write)
    assert path.read_bytes() == b"new"


def test_two_that_write_one_file_are_not_in_each_others_way(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    def slow(stream: IO[bytes]) -> None:
        write_atomic(path, lambda other: other.write(b"the other's"))
        assert path.read_bytes() == b"the other's"
        stream.write(b"ours")

    write_atomic(path, slow)
    assert path.read_bytes() == b"ours"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_and_a_link_followed_not_replaced(tmp_path: Path) -> None:
    pipe, target, link = tmp_path / "pipe", tmp_path / "target", tmp_path / "link"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(pipe, lambda stream: stream.write(b"through"))
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomic(link, lambda stream: stream.write(b"new"))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_lines_are_appended_and_a_torn_one_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_lines(path, b"a\nb\n")
    append_lines(path, b"c\n")
    assert path.read_bytes() == b"a\nb\nc\n"
    path.write_bytes(b"a\nto")
    append_lines(path, b"b\n")
    assert path.read_bytes() == b"a\nto\nb\n"


def test_lines_for_which_there_is_no_room_are_not_left_in_part(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n")
    program = (
        "import resource, signal, sys; from pathlib import Path; from dsui.runs.files import append_lines\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (6, 6))\n"
        "try: append_lines(Path(sys.argv[1]), b'longer than that\\n')\n"
        "except OSError as error: print(error.strerror)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "No space left on device\n"
    assert path.read_bytes() == b"a\n"


HOLD = """
import sys
from pathlib import Path
from dsui.runs.files import lock_or_refuse, wait_for_lock
path = Path(sys.argv[1])
if sys.argv[2] == "refuse":
    lock = lock_or_refuse(path)
else:
    context = wait_for_lock(path)
    context.__enter__()
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: Path, kind: str) -> subprocess.Popen[str]:
    """A process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path, "refuse") as process:
        with pytest.raises(BlockingIOError) as caught:
            lock_or_refuse(path)
        assert caught.value.args == (process.pid,)
        process.communicate()
    lock_or_refuse(path).close()
    assert path.read_text() == str(os.getpid())


def test_a_second_process_waits_until_the_first_is_done(tmp_path: Path) -> None:
    path, entered = tmp_path / "lock", threading.Event()

    def enter() -> None:
        with wait_for_lock(path):
            entered.set()

    with holder(path, "wait") as process:
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.3)
        process.communicate()
    assert entered.wait(60)
    thread.join()


def enter(path: Path) -> None:
    with wait_for_lock(path):
        pass


@pytest.mark.parametrize("lock", [lock_or_refuse, enter])
def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(
    tmp_path: Path, lock: Callable[[Path], object]
) -> None:
    target, link = tmp_path / "precious", tmp_path / ".lock"
    target.write_text("12")
    link.symlink_to(target)
    with pytest.raises(OSError, match=r"\.lock is a link"):
        lock(link)
    assert target.read_text() == "12"
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match=r"\.lock is a link"):
        lock(link)
    assert not (tmp_path / "nowhere").exists()


def test_a_lock_that_becomes_a_link_at_the_last_moment_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_text("12")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    with pytest.raises(OSError, match="symbolic links"):
        lock_or_refuse(tmp_path / ".lock")
    assert (tmp_path / "precious").read_text() == "12"


def test_a_file_that_is_no_lock_is_not_emptied_under_any_name(tmp_path: Path) -> None:
    precious, lock = tmp_path / "precious", tmp_path / ".lock"
    precious.write_text("years of work")
    lock.hardlink_to(precious)
    with pytest.raises(OSError, match="not a lock of dsui"):
        lock_or_refuse(lock)
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize("lock", [lock_or_refuse, enter])
def test_a_pipe_in_the_place_of_a_lock_is_refused_and_not_waited_for(
    tmp_path: Path, lock: Callable[[Path], object]
) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(OSError, match=r"\.lock is not a file"):
        lock(tmp_path / ".lock")


def test_a_lock_removed_before_it_was_taken_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process has opened the file when the first removes it and a third makes a new one."""
    path, take, held = tmp_path / ".lock", fcntl.flock, []
    first = lock_or_refuse(path)

    def late(stream: IO[bytes], how: int) -> None:
        monkeypatch.undo()
        remove_lock(first, path)
        held.append(lock_or_refuse(path))
        take(stream, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(BlockingIOError):
        lock_or_refuse(path)
    held[0].close()


def test_a_lock_is_held_until_its_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, unlink = tmp_path / ".lock", Path.unlink
    held = lock_or_refuse(path)

    def while_held(file: Path, missing_ok: bool = False) -> None:
        with pytest.raises(BlockingIOError):
            lock_or_refuse(path)
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", while_held)
    remove_lock(held, path)
    assert not path.exists()
    assert held.closed


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    program = (
        "import os, sys; from pathlib import Path; from dsui.runs.files import write_atomic\n"
        "write_atomic(Path(sys.argv[1]), lambda stream: os.kill(os.getpid(), 9))"
    )
    subprocess.run([sys.executable, "-c", program, path], check=False)
    assert len(list(tmp_path.glob("report.html.*.tmp"))) == 1
    others = [tmp_path / "report.html.notes.tmp", tmp_path / "other.html.0123456789ab.tmp"]
    for other in others:
        other.touch()
    write_bytes(path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_what_a_living_process_writes_is_not_taken_for_abandoned(tmp_path: Path) -> None:
    """Neither before nor after its file is locked."""
    path = tmp_path / "file"
    program = (
        "import sys; from pathlib import Path; from dsui.runs.files import write_atomic\n"
        "def write(stream): stream.write(b'slow'); print('writing', flush=True); sys.stdin.read()\n"
        "write_atomic(Path(sys.argv[1]), write)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == "writing\n"
        write_bytes(path, b"fast")
        assert path.read_bytes() == b"fast"
        slow.communicate()
        assert slow.returncode == 0
    assert path.read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [path]


def test_a_part_is_written_by_one_process_and_a_finished_one_is_not_touched(tmp_path: Path) -> None:
    part, whole = tmp_path / "p.csv.part", tmp_path / "p.csv"
    part.write_bytes(b"left by a kill")
    with open_exclusively(part) as stream:
        assert part.read_bytes() == b""
        with pytest.raises(BlockingIOError):
            open_exclusively(part)
        stream.write(b"rows")
        part.replace(whole)
        with open_exclusively(part) as following:
            following.write(b"others")
    assert (whole.read_bytes(), part.read_bytes()) == (b"rows", b"others")


def test_a_part_opened_before_it_was_renamed_is_not_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, whole, take = tmp_path / "p.csv.part", tmp_path / "p.csv", fcntl.flock
    part.write_bytes(b"rows")

    def late(stream: IO[bytes], how: int) -> None:
        monkeypatch.undo()
        part.replace(whole)
        take(stream, how)

    monkeypatch.setattr(fcntl, "flock", late)
    open_exclusively(part).close()
    assert whole.read_bytes() == b"rows"


def test_where_files_cannot_be_locked_each_process_has_a_part_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with open_exclusively(tmp_path / "p.csv.part") as stream:
        assert Path(str(stream.name)) == tmp_path / f"p.csv.{os.getpid()}.part"
    write_bytes(tmp_path / "file", b"without locks")
    append_lines(tmp_path / "file", b"too\n")
    assert (tmp_path / "file").read_bytes() == b"without locks\ntoo\n"


def test_lines_wait_for_those_of_another_process(tmp_path: Path) -> None:
    """Otherwise a line could be cut off by the other one's retreat from a full disk."""
    path = tmp_path / "lines"
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=append_lines, args=(path, b"ours\n"))
        thread.start()
        thread.join(0.3)
        assert path.read_bytes() == b""
        other.write(b"theirs\n")
    thread.join()
    assert path.read_bytes() == b"theirs\nours\n"
