"""A checkpoint on disk: whole or not at all, never a risk to open, and seldom enough to cost nothing.

A file is written beside, brought to the disk and renamed, so that a kill or a full disk leaves the former one. torch
writes a checksum of every part but does not look at it again; `load_state` does, before anything is unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import uuid
import zipfile
from typing import IO, TYPE_CHECKING, Any

import torch

from dsui.errors import DsuiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SCHEMA = 1  # of state.pt and model.safetensors; raised when older code could not read what newer code writes
SHORTEST_PAUSE = 60.0  # seconds between checkpoints
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)  # of a file that may be whole all the same
PAUSE_PER_SAVE = 49.0  # a save of d seconds and 49 d seconds of training: 2 % of the time is spent on saving


class RunError(DsuiError):
    """The folder of a run cannot be used as asked; the sentence names the file and what to do."""


def unwritten(path: Path, error: OSError) -> RunError:
    """What to tell when `path` could not be written."""
    return RunError(
        f"{path} could not be written ({error.strerror}); "
        "the last good checkpoint, if any, is kept, so mend this and run again."
    )


def write_whole(path: Path, write: Callable[[IO[bytes]], object], beside: Path | None = None) -> None:
    """Let `write` fill a file `beside`, by default one of this call alone, then put it in the place of `path`.

    What a link leads to is replaced and not the link; a device or a pipe is written to.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            with path.open("wb") as stream:
                write(stream)
        except OSError as error:
            raise unwritten(path, error) from error
        return
    beside = beside or path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with beside.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except (OSError, RuntimeError) as error:
        # the zip writer of torch answers an error of the disk with a RuntimeError of its own
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise unwritten(path, cause) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    # not every file system can sync a folder; without it a power cut may bring back the former file, which is whole too
    with contextlib.suppress(OSError):
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors and plain values, nested in dicts, lists and tuples; nothing else could be loaded again.

    The lock of a run keeps others away, so that what a kill leaves may have a name that the next save writes over.
    """
    content = {"schema": SCHEMA, "state": dict(state)}
    write_whole(path, lambda stream: torch.save(content, stream), beside=path.with_name(f"{path.name}.tmp"))


def load_state(path: Path, map_location: torch.device | str) -> dict[str, Any] | None:
    """What `save_state` wrote, or None where there is no checkpoint."""
    try:
        with zipfile.ZipFile(path) as archive:
            if part := archive.testzip():
                raise zipfile.BadZipFile(f"the checksum of {part} is wrong")
        content = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        return None
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a forged or foreign file can fail in any way inside the unpickler
        if isinstance(error, OSError) and error.errno in UNREADABLE:
            raise RunError(f"{path} cannot be read ({error.strerror}); mend this and run again.") from error
        raise RunError(
            f"{path} is not a whole checkpoint of dsui; delete it to train from the beginning, or choose another --out."
        ) from error
    check_schema(path, content.get("schema") if isinstance(content, dict) else None)
    state: dict[str, Any] = content["state"]
    return state


def check_schema(path: Path, schema: object) -> None:
    """Refuse a file of another program or of a later version."""
    if not isinstance(schema, int):
        raise RunError(f"{path} was not written by dsui; choose another run.")
    if schema > SCHEMA:
        raise RunError(f"{path} was written by a newer dsui (schema {schema}, this one knows {SCHEMA}); update dsui.")


def check_room(path: Path, needed_bytes: int) -> None:
    """Refuse a run folder, made already or not, that cannot be written to or whose disk has too little room.

    `needed_bytes` are those of two checkpoints, since the former stays until the next is whole.
    """
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".probe-"):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        raise RunError(f"{existing} cannot be written to ({error.strerror}); choose another --out.") from error
    if free < needed_bytes:
        raise RunError(
            f"{path} needs about {needed_bytes / 1e6:,.0f} MB for its checkpoints and its disk has "
            f"{free / 1e6:,.0f} MB free; make room or choose another --out."
        )


class Pacer:
    """When a checkpoint is due: at most every `shortest` seconds and 2 % of the time; by one monotonic clock."""

    def __init__(self, now: float, shortest: float = SHORTEST_PAUSE) -> None:
        self._ended = now
        self._shortest = self._pause = shortest

    def due(self, now: float) -> bool:
        return now - self._ended >= self._pause

    def saved(self, duration: float, now: float) -> None:
        """Note a save that took `duration` and ended `now`."""
        self._ended = now
        self._pause = max(self._shortest, PAUSE_PER_SAVE * duration)
