"""Files that are written whole or not at all, lines that are appended whole, and locks between processes.

Everything dsui keeps on disk is written here, except downloads and predictions, whose parts are kept to continue.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
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

LONGEST_NUMBER = 20
"""More bytes than the number of any process has. A lock file holds that number and nothing else."""


def not_written(path: Path, error: OSError) -> RunError:
    """The error for a file that could not be written."""
    return RunError(
        f"{path} could not be written ({error.strerror}); "
        "the last good checkpoint, if any, is kept, so repair this and run again."
    )


def write_atomic(
    path: Path,
    write: Callable[[IO[bytes]], object],
    temporary: Path | None = None,
    durable: bool = True,
    former: Path | None = None,
) -> None:
    """Let `write` fill a temporary file, and rename it to `path`.

    A kill or a full disk leaves the former file. `durable` also forces the new file to the disk before the rename, so
    that a power cut leaves one of the two whole. `former` is a name under which the former file is kept. `temporary` is
    by default a name that no other call uses, and what killed processes left under such names is removed. A link is
    followed and its target replaced. A device or a pipe is written to directly.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            with path.open("wb") as device:
                write(device)
        except OSError as error:
            raise not_written(path, error) from error
        return
    try:
        if temporary is None:
            _remove_abandoned(path)
        stream = _open_temporary(path) if temporary is None else temporary.open("wb")
    except OSError as error:
        raise not_written(path, error) from error
    temporary = Path(stream.name)
    try:
        with stream:
            write(stream)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
            if sys.platform == "win32":
                stream.close()  # Windows does not rename an open file; elsewhere its lock shows that it is in use
            if former is not None and path.exists():
                _give_second_name(path, former)
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
    newline first, so that it damages no other line. Processes that append to one file take turns.
    """
    with path.open("a+b", buffering=0) as stream:
        _lock_if_possible(stream)
        start = stream.seek(0, os.SEEK_END)
        if start and stream.seek(start - 1) is not None and stream.read(1) != b"\n":
            lines = b"\n" + lines
        if stream.write(lines) < len(lines):
            stream.truncate(start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class LockFile(FileIO):
    """An open file that may be locked; `is_new` says that no process had noted its number in it."""

    is_new = True


def lock_or_refuse(path: Path) -> LockFile:
    """An open file that stays locked until it is closed, or until the process dies.

    Where another process holds the lock, a BlockingIOError has that process's number, or None, as its only argument.
    An OSError where the file is a link or not a lock, which is then left as it is. Windows has no such lock: there the
    user must write a run from one process at a time.
    """
    while True:
        with ExitStack() as on_error:
            stream = on_error.enter_context(_open_lock(path))
            if sys.platform != "win32":
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise BlockingIOError(_holder(stream)) from None
                if not _is_at(stream, path):  # its holder removed it, and a third process may have made a new one
                    continue
            stream.is_new = _holder(stream) is None
            if stream.is_new and os.fstat(stream.fileno()).st_size:
                raise OSError(errno.EINVAL, f"{path.name} is there and not a lock of dsui")
            stream.truncate(0)
            stream.write(str(os.getpid()).encode())
            on_error.pop_all()
        _held.add(stream)
        return stream


def remove_lock(stream: FileIO, path: Path) -> None:
    """Give back the lock of `lock_or_refuse` and remove its file.

    It is removed while it is held: whoever opened it before finds it gone, and takes a new one.
    """
    if sys.platform == "win32":
        stream.close()  # Windows does not remove an open file
    path.unlink(missing_ok=True)
    stream.close()


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock at `path`, and hold it until the end of the context."""
    with _open_lock(path) as stream:
        if sys.platform != "win32":
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def open_exclusively(path: Path) -> FileIO:
    """`path` emptied and open for writing, locked against other calls until it is closed.

    A BlockingIOError where another process writes it, and an OSError where it is a link. Where files cannot be locked,
    a name of this process's own is opened instead, `path` with the number of the process before its ending.
    """
    own = path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}")
    if sys.platform == "win32":
        return FileIO(own, "w")
    while True:
        with ExitStack() as on_error:
            stream = on_error.enter_context(_open_lock(path))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                return FileIO(own, "w")
            if not _is_at(stream, path):  # it was renamed in the meantime, and is a finished file now
                continue
            stream.truncate(0)
            on_error.pop_all()
        return stream


def _open_lock(path: Path) -> LockFile:
    """The file, made where it is missing, for reading and appending; an OSError for a link or a device."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} is a link")
    more = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # of a pipe nobody may be at the other end
    stream = LockFile(path, "a+", opener=lambda name, flags: os.open(name, flags | more, 0o666))
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, f"{path.name} is not a file")
    return stream


def _holder(stream: FileIO) -> int | None:
    """The number of the process that last held a lock; None where the file holds no number."""
    stream.seek(0)
    text = stream.read(LONGEST_NUMBER + 1)
    return int(text) if text.isdigit() and len(text) <= LONGEST_NUMBER else None


def _is_at(stream: FileIO, path: Path) -> bool:
    """Whether the open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _give_second_name(path: Path, second: Path) -> None:
    """Make `second` a name of the file at `path`, in place of another file; no byte is copied."""
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except OSError:  # the file system knows one name for a file, and until the next rename it is this one
        path.replace(second)


def _open_temporary(path: Path) -> IO[bytes]:
    """A new file beside `path`, locked as long as it is open, so that no other process takes it for abandoned."""
    while True:
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        stream = temporary.open("xb")
        _lock_if_possible(stream)
        if temporary.exists():  # and was not taken for abandoned before it was locked
            return stream
        stream.close()


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files that killed processes left beside `path`: those that nobody has locked."""
    if sys.platform == "win32":  # has no locks to tell them by
        return
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{12}\.tmp")
    with contextlib.suppress(OSError):
        for found in [each for each in os.listdir(path.parent) if name.fullmatch(each)]:
            with contextlib.suppress(OSError), _open_lock(path.with_name(found)) as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.with_name(found).unlink()


def _lock_if_possible(stream: IO[bytes] | FileIO) -> None:
    """Wait for the lock of an open file; some file systems have none."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)


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
