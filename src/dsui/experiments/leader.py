"""Processes that end with the one that started them, also if it was killed and could tell them nothing.

The leader holds one end of a pipe, the standard input of the process that it started. The pipe closes when the leader
is gone, whatever ended it. The process then asks itself to stop, so that a run writes its checkpoint.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl

LEADER, BY_INPUT = "DSUI_LEADER", "standard input"
"""The environment variable, and its value, that tell a process to end with its leader. The input of others may be
closed from the start, as under SLURM."""
POLL_SECONDS = 0.1
STOP_SECONDS = 60.0
"""How long a process may take to write its checkpoint when it is stopped."""


def start(
    arguments: Sequence[str], log: IO[bytes], more: Mapping[str, str] = {}, folder: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a new session: Ctrl-C reaches only the leader, which then stops the others. `more` is added to
    its environment, what it prints goes to `log`, and it starts in `folder`, by default that of the leader."""
    return subprocess.Popen(  # noqa: S603
        list(arguments),
        env={**os.environ, **more, LEADER: BY_INPUT},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended; then its pipe is closed."""
    if process.poll() is None:
        return False
    if process.stdin is not None:
        process.stdin.close()
    return True


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let the processes write their checkpoints and end; kill those that take too long, whose last checkpoint stays."""
    for process in processes:
        process.terminate()
    ends = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finished(process)


def run_logged(arguments: list[str], folder: str, log: str) -> tuple[float, int | str]:
    """Run a process to its end; its seconds and its status, or a sentence if it could not begin.

    It starts in `folder`, if the machine has it, since relative paths in the grid start there. It begins when no
    process of an earlier call writes to `log` any more: one whose leader was lost may still write its checkpoint. An
    exception, such as the KeyboardInterrupt of a cancelled task, stops the process.
    """
    began = time.monotonic()
    try:
        with Path(log).open("ab") as stream:
            while not _locked(stream):
                time.sleep(POLL_SECONDS)
            began = time.monotonic()
            process = start(arguments, stream, folder=folder if Path(folder).is_dir() else None)
    except OSError as error:
        where = f"{socket.gethostname()} could not use {error.filename} ({error.strerror})"
        return 0.0, f"{where}; Python and the folder of the study must be on a disk that all machines see."
    try:
        while not finished(process):
            time.sleep(POLL_SECONDS)  # in a blocking wait, a KeyboardInterrupt from another thread would not arrive
    finally:
        stop([process])
    return time.monotonic() - began, process.returncode


def _locked(stream: IO[bytes]) -> bool:
    """Whether the open file could be locked. A process that inherits the file keeps the lock as long as it lives."""
    if sys.platform != "win32":
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # some file systems have no locks
            return True
    return True


def end_with_leader() -> None:
    """In a process that `start` started: watch the leader from now on."""
    if os.environ.pop(LEADER, None) == BY_INPUT:
        threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 1):
        pass  # the leader writes nothing
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)
