"""Files that are written whole or not at all, lines that are appended whole, and locks between processes.

Everything dsui keeps on disk is written here, except downloads and predictions, whose parts are kept to continue.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import IO
from weakref import WeakSet

from dsui.errors import RunError

if sys.platform != "win32":
    import fcntl


def not_written(path: Path, error: OSError) -> RunError:
    """The error for a file that could not be written."""
    return RunError(
        f"{path} could not be written ({error.strerror}); "
        "the last good checkpoint, if any, is kept, so repair this and run again."
    )


def write_atomic(
    path: Path, write: Callable[[IO[bytes]], object], temporary: Path | None = None, durable: bool = True
) -> None:
    """Let `write` fill a temporary file, and rename it to `path`.

    A kill or a full disk leaves the former file. `durable` also forces the new file to the disk before the rename, so
    that a power cut leaves one of the two whole. `temporary` is by default a name that no other call uses. A link is
    followed and its target replaced. A device or a pipe is written to directly.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            with path.open("wb") as stream:
                write(stream)
        except OSError as error:
            raise not_written(path, error) from error
        return
    temporary = temporary or path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with temporary.open("wb") as stream:
            write(stream)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        # torch's zip writer turns an error of the disk into a RuntimeError
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise not_written(path, cause) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    if durable:
        # Some file systems cannot sync a folder. A power cut may then bring back the former file, which is whole too.
        with contextlib.suppress(OSError):
            _sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """`write_atomic` for content that is in memory."""
    write_atomic(path, lambda stream: stream.write(content))


def append_lines(path: Path, lines: bytes) -> None:
    """Append whole lines in one write, all of them or none; an OSError where the disk refuses.

    A reader may trust every line that ends with a newline. A last line without one, left by a killed process, gets its
    newline first, so that it damages no other line.
    """
    with path.open("a+b", buffering=0) as stream:
        start = stream.seek(0, os.SEEK_END)
        if start and stream.seek(start - 1) is not None and stream.read(1) != b"\n":
            lines = b"\n" + lines
        if stream.write(lines) < len(lines):
            stream.truncate(start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lock_or_refuse(path: Path) -> FileIO:
    """An open file that stays locked until it is closed, or until the process dies.

    Where another process holds the lock, a BlockingIOError has that process's number, or None, as its only argument.
    Windows has no such lock: there the user must write a run from one process at a time.
    """
    with ExitStack() as on_error:
        stream = on_error.enter_context(path.open("a+b", buffering=0))
        if sys.platform != "win32":
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.seek(0)
                text = stream.read(20).decode(errors="replace")
                raise BlockingIOError(int(text) if text.isdecimal() else None) from None
        stream.truncate(0)
        stream.write(str(os.getpid()).encode())
        on_error.pop_all()
    _held.add(stream)
    return stream


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock at `path`, and hold it until the end of the context."""
    with path.open("ab") as stream:
        if sys.platform != "win32":
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_held: WeakSet[FileIO] = WeakSet()
if sys.platform != "win32":

    def _drop_inherited_locks() -> None:
        for stream in _held:
            stream.close()

    # A lock lives as long as any process has its file open. A forked data loader must not keep the run locked.
    os.register_at_fork(after_in_child=_drop_inherited_locks)
