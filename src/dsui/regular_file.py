"""The one place where files from outside are opened: regular files of a limited size, and nothing else.

Opening a pipe waits for its other end, and reading a device may never end. Both are refused before they are opened,
with an OSError whose `strerror` completes "cannot be read (...)", like that of a missing file.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(path: Path, most: int | None = None) -> None:
    """An OSError unless `path`, links followed, is a regular file of at most `most` bytes."""
    _check(path, os.stat(path), most)


def open_regular(path: Path, most: int | None = None) -> BufferedReader:
    """The file, open for reading."""
    check_regular(path, most)
    # a pipe put in the file's place since then neither stops this nor passes the second check
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    stream = os.fdopen(descriptor, "rb")
    try:
        _check(path, os.fstat(descriptor), most)
    except OSError:
        stream.close()
        raise
    return stream


def read_regular(path: Path, most: int) -> bytes:
    """All bytes of the file, which are at most `most`."""
    with open_regular(path, most) as stream:
        return stream.read(most)


def _check(path: Path, status: os.stat_result, most: int | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        what = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {what} and not a file", str(path))
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"it holds {status.st_size:,} bytes, more than the {most:,} it may hold", str(path))
