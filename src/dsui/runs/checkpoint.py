"""A checkpoint on disk: whole or not at all, safe to open, and rare enough to cost almost nothing.

`write_atomic` writes it, so that a kill or a full disk leaves the former one. The former one also stays beside the
newest until the run is finished. torch writes a checksum of every part but never checks it; `load_state` does, before
anything is unpickled.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

import torch

from dsui.errors import RunError
from dsui.plain_pickle import check_pickle
from dsui.regular_file import check_regular
from dsui.runs.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = 1
"""Of state.pt and model.safetensors; raised when older code cannot read what newer code writes."""
SHORTEST_PAUSE = 60.0
"""Seconds between checkpoints."""
PAUSE_PER_SAVE = 49.0
"""A save of d seconds is followed by 49 d seconds of training, so that saving takes 2 % of the time."""
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)
"""Errors of a file that may still be whole."""


class DamagedStateError(RunError):
    """The file holds no whole checkpoint."""


def save_state(path: Path, state: Mapping[str, Any], former: Path | None = None) -> None:
    """Write tensors and plain values, nested in dicts, lists and tuples; nothing else could be loaded again.

    The checkpoint that was there gets the name `former`. The lock of a run keeps others away, so the temporary file has
    a fixed name, and the next save replaces what a kill left of it.
    """
    content = {"schema": SCHEMA, "state": dict(state)}
    temporary = path.with_name(f"{path.name}.tmp")
    write_atomic(path, lambda stream: torch.save(content, stream), temporary, former=former)


def load_state(path: Path, map_location: torch.device | str) -> dict[str, Any] | None:
    """What `save_state` wrote, or None where there is no checkpoint; a DamagedStateError where it is not whole."""
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            if part := archive.testzip():
                raise zipfile.BadZipFile(f"the checksum of {part} is wrong")
            for part in archive.namelist():
                if part.endswith(".pkl"):
                    check_pickle(archive.read(part))
        content = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        return None
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a forged or foreign file can make the unpickler fail in any way
        if isinstance(error, OSError) and error.errno in UNREADABLE:
            raise RunError(f"{path} cannot be read ({error.strerror}); repair this and run again.") from error
        raise DamagedStateError(
            f"{path} is not a whole checkpoint of dsui; delete it to train from the beginning, or choose another --out."
        ) from error
    check_schema(path, content.get("schema") if isinstance(content, dict) else None)
    state = content.get("state")
    if not isinstance(state, dict):
        raise RunError(f"{path} was not written by dsui; choose another run.")
    return state


def check_schema(path: Path, schema: object) -> None:
    """Refuse a file of another program or of a later version."""
    if not isinstance(schema, int):
        raise RunError(f"{path} was not written by dsui; choose another run.")
    if schema > SCHEMA:
        raise RunError(f"{path} was written by a newer dsui (schema {schema}, this one knows {SCHEMA}); update dsui.")


def check_room(path: Path, needed_bytes: int) -> None:
    """Refuse a run folder, existing or not, that cannot be written to or whose disk has too little room.

    `needed_bytes` are those of three checkpoints, because two stay until the next is whole.
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
    """When a checkpoint is due: at most every `shortest` seconds and for at most 2 % of the time.

    Times are those of one monotonic clock.
    """

    def __init__(self, now: float, shortest: float = SHORTEST_PAUSE) -> None:
        self._ended = now
        self._shortest = self._pause = shortest

    def due(self, now: float) -> bool:
        return now - self._ended >= self._pause

    def saved(self, duration: float, now: float) -> None:
        """Note a save that took `duration` and ended `now`."""
        self._ended = now
        self._pause = max(self._shortest, PAUSE_PER_SAVE * duration)
