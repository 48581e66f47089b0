"""The folder of one run: its settings, checkpoint, weights and log, and a lock, since two must never write one run.

In a distributed job only rank 0 makes a RunFolder: this is the caller's duty, any other rank would find it locked.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Self

import yaml

from dsui.errors import RunError
from dsui.runs import checkpoint, weights
from dsui.runs.files import append_lines, lock_or_refuse, not_written, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import FileIO
    from pathlib import Path

    import torch
    from torch import Tensor

CONFIG = "config.yaml"
STATE = "state.pt"
WEIGHTS = "model.safetensors"
LOG = "log.jsonl"
RESULTS = "results.jsonl"
LOCK = ".lock"


class RunFolder:
    """One run, locked until `close` or the death of the process; made by `create` or `resume`."""

    def __init__(self, path: Path, config: Mapping[str, object]) -> None:
        self.path = path
        self.config: dict[str, object] = json.loads(json.dumps(config))  # tuples become the lists that YAML reads back
        self.is_new = False
        self._lock = _lock(path)

    @classmethod
    def create(cls, path: Path, config: Mapping[str, object]) -> RunFolder:
        """Begin a run; one that was killed before its first checkpoint is overwritten."""
        is_new = not path.exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(path, error) from error
        if not (path / LOCK).exists() and (other := [name for name in (CONFIG, LOG) if (path / name).exists()]):
            raise RunError(f"{path / other[0]} is not of a run and would be overwritten; choose another --out.")
        with contextlib.ExitStack() as on_error:
            folder = on_error.enter_context(cls(path, config))
            if any((path / name).exists() for name in (STATE, WEIGHTS)):
                raise RunError(f"{path} already holds a run; use --resume or another --out.")
            folder._write(LOG, b"")
            folder._write(CONFIG, yaml.safe_dump(folder.config, sort_keys=False, allow_unicode=True).encode())
            folder.is_new = is_new
            on_error.pop_all()
        return folder

    @classmethod
    def resume(cls, path: Path, config: Mapping[str, object]) -> RunFolder:
        """Go on with a run of the same settings, from the beginning where it has no checkpoint yet."""
        if not os.path.exists(path / CONFIG):  # before the lock, which would leave its file in a folder without a run
            raise RunError(f"{path} holds no run to resume ({CONFIG} is missing); leave out --resume or correct --out.")
        with contextlib.ExitStack() as on_error:
            folder = on_error.enter_context(cls(path, config))
            there, here = _read_config(path / CONFIG), _settings(folder.config)
            if differences := [
                f"{key}: {_shown(there, key)} there, {_shown(here, key)} here"
                for key in there | here
                if key not in there or key not in here or there[key] != here[key]
            ]:
                raise RunError(
                    f"{path} was begun with other settings ({'; '.join(differences)}); "
                    "resume with those or choose another --out."
                )
            if not (path / STATE).exists():
                if (path / WEIGHTS).exists():
                    raise RunError(f"{path} is trained and its checkpoint is gone, so there is nothing to resume.")
                folder._write(LOG, b"")
            on_error.pop_all()
        return folder

    def save_state(self, state: Mapping[str, Any]) -> None:
        checkpoint.save_state(self.path / STATE, state)

    @staticmethod
    def read_state(path: Path, map_location: torch.device | str) -> dict[str, Any] | None:
        """What was saved last in the folder `path`, or None before that; ranks without its lock read it too."""
        return checkpoint.load_state(path / STATE, map_location)

    def save_weights(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """The settings join the metadata as JSON under "config"."""
        weights.save_weights(self.path / WEIGHTS, tensors, {**metadata, "config": json.dumps(self.config)})

    def log(self, row: Mapping[str, object]) -> None:
        """Append one line. Its end comes last in one write, so that a line with an end is whole."""
        path = self.path / LOG
        try:
            append_lines(path, json.dumps(row).encode() + b"\n")
        except OSError as error:
            raise not_written(path, error) from error

    def trim_log(self, step: int) -> None:
        """Drop the rows after `step`, which a resumed run writes again, and a torn last one."""
        self._write(LOG, b"".join(line for line, row in self._rows() if row.get("step", step) <= step))

    def _rows(self) -> list[tuple[bytes, dict[str, Any]]]:
        path = self.path / LOG
        rows = []
        content = _read(path) if path.exists() else b""
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                break
            try:
                rows.append((line, dict(json.loads(line))))
            except (ValueError, TypeError) as error:
                raise RunError(f"{path} is damaged in line {number}; delete that line.") from error
        return rows

    def _write(self, name: str, content: bytes) -> None:
        write_bytes(self.path / name, content)

    def discard(self) -> None:
        """Take back what `create` wrote, for a run that did not begin."""
        for name in (CONFIG, LOG):
            (self.path / name).unlink(missing_ok=True)
        self.close()  # Windows removes no open file
        (self.path / LOCK).unlink(missing_ok=True)
        if self.is_new and not any(self.path.iterdir()):
            self.path.rmdir()

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); mend this or choose another --out.") from error


def _read_config(path: Path) -> dict[str, object]:
    content = _read(path)
    try:
        return _settings(yaml.safe_load(content))
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged and cannot be compared; restore it or choose another --out.") from error


def _settings(config: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Every setting by its full name: {"head": {"components": 8}} is {"head.components": 8}."""
    flat: dict[str, object] = {}
    for key, value in config.items():
        flat |= _settings(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat


def _shown(settings: Mapping[str, object], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False, default=str) if key in settings else "absent"


def _lock(folder: Path) -> FileIO:
    """The lock of a run, or a sentence that says who holds it."""
    try:
        return lock_or_refuse(folder / LOCK)
    except BlockingIOError as error:
        holder = "another process" if error.args[0] is None else f"process {error.args[0]}"
        raise RunError(f"{folder} is in use by {holder}; wait for its end or choose another --out.") from error
    except OSError as error:
        raise RunError(f"{folder} cannot be locked ({error.strerror}); choose another --out.") from error
