"""Files on disk are whole or as they were, lines are appended whole, and a lock keeps a second process out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from dsui.errors import RunError
from dsui.runs.files import append_lines, lock_or_refuse, wait_for_lock, write_atomic


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
