"""The folder of one run: its config, checkpoint, weights and log, and a lock that keeps a second process away.

In a distributed job only rank 0 may make a RunFolder; any other rank would find it locked.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Self, TypeVar

import yaml

from dsui.errors import RunError
from dsui.excerpt import shorten
from dsui.plain_json import load_json
from dsui.plain_yaml import MOST_CHARACTERS, load_yaml
from dsui.recipe import RecipeError
from dsui.regular_file import read_regular
from dsui.runs import checkpoint, weights
from dsui.runs.config import RunConfig
from dsui.runs.files import LockFile, append_lines, lock_or_refuse, not_written, remove_lock, write_bytes
from dsui.runs.log import read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch
    from torch import Tensor

Parsed = TypeVar("Parsed")
CONFIG = "config.yaml"
STATE = "state.pt"
FORMER_STATE = "state.former.pt"
"""The checkpoint before the newest, kept until the run is finished."""
WEIGHTS = "model.safetensors"
LOG = "log.jsonl"
RESULTS = "results.jsonl"
LOCK = ".lock"
CONFIG_OF_STATE = "config"
"""Key in a checkpoint: the settings of its run, as JSON."""


class RunFolder:
    """One run, locked until `close` or the death of the process; made by `create` or `resume`."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config
        self.is_new = False
        self._lock = _lock(path)

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunFolder:
        """Begin a run; one that was killed before its first checkpoint is overwritten."""
        if any(0xDC80 <= ord(char) <= 0xDCFF for char in str(path)):
            raise RunError(f"{path} is no text in UTF-8, which the files of weights need; choose another --out.")
        is_new = not path.exists()
        with contextlib.ExitStack() as on_error:
            folder = on_error.enter_context(cls._made(path, config))
            other = [name for name in (CONFIG, LOG) if (path / name).exists()]
            if other and folder._lock.is_new:
                remove_lock(folder._lock, path / LOCK)
                raise RunError(
                    f"{path / other[0]} does not belong to a run and would be overwritten; choose another --out."
                )
            if any((path / name).exists() for name in (STATE, FORMER_STATE, WEIGHTS)):
                raise RunError(f"{path} already holds a run; use --resume or another --out.")
            folder._write(LOG, b"")
            folder._write(CONFIG, yaml.safe_dump(config.mapping(), sort_keys=False, allow_unicode=True).encode())
            folder.is_new = is_new
            on_error.pop_all()
        return folder

    @classmethod
    def _made(cls, path: Path, config: RunConfig) -> RunFolder:
        """The run in a folder that is made if need be; a run that does not begin may remove it at any moment."""
        while True:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if isinstance(error, FileExistsError) and not os.path.lexists(path):
                    continue
                raise not_written(path, error) from error
            try:
                return cls(path, config)
            except RunError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise

    @classmethod
    def resume(cls, path: Path, config: RunConfig) -> RunFolder:
        """Continue a run of the same settings, from the beginning where it has no checkpoint yet."""
        if not os.path.exists(path / CONFIG):  # before the lock, which would leave its file in a folder without a run
            raise RunError(f"{path} holds no run to resume ({CONFIG} is missing); leave out --resume or correct --out.")
        with contextlib.ExitStack() as on_error:
            folder = on_error.enter_context(cls(path, config))
            if differences := _differences(_read_settings(path / CONFIG), config):
                raise RunError(
                    f"{path} was begun with other settings ({differences}); resume with those or choose another --out."
                )
            if not any((path / name).exists() for name in (STATE, FORMER_STATE)):
                if (path / WEIGHTS).exists():
                    raise RunError(
                        f"{path} is trained and its checkpoint is gone, so there is nothing to resume; "
                        "leave out --resume and choose another --out."
                    )
                folder._write(LOG, b"")
            on_error.pop_all()
        return folder

    def save_state(self, state: Mapping[str, Any]) -> None:
        """The config joins the state as JSON under "config"."""
        checkpoint.save_state(
            self.path / STATE, {**state, CONFIG_OF_STATE: json.dumps(self.config.mapping())}, self.path / FORMER_STATE
        )

    def load_state(
        self, map_location: torch.device | str, note: Callable[[str], None] = lambda _sentence: None
    ) -> dict[str, Any] | None:
        """The last checkpoint of this run, or None before the first.

        Where it is damaged or missing, the one before it takes its place, and `note` gets a sentence. The state of
        another run is refused.
        """
        newest, former = self.path / STATE, self.path / FORMER_STATE
        damage = None
        try:
            state = checkpoint.load_state(newest, map_location)
        except checkpoint.DamagedStateError as error:
            state, damage = None, error
        if state is not None:
            self._check_config(state, note)
            return state
        try:
            state = checkpoint.load_state(former, map_location)
        except checkpoint.DamagedStateError as error:
            raise RunError(
                f"neither {newest} nor {former.name} beside it is a whole checkpoint of dsui; delete both to train "
                "from the beginning, or choose another --out."
            ) from error
        if state is not None:
            self._check_config(state, note)
            former.replace(newest)  # before the next save gives the damaged one the name of the former
            note(f"{newest} is {'damaged' if damage else 'missing'}, so the run goes on from the checkpoint before it.")
        elif damage is not None:
            raise damage
        return state

    @staticmethod
    def read_state(path: Path, map_location: torch.device | str, name: str = STATE) -> dict[str, Any] | None:
        """The checkpoint in the folder `path`, for processes without the lock."""
        return checkpoint.load_state(path / name, map_location)

    @property
    def stored_bytes(self) -> int:
        """The size of the checkpoints that are there."""
        return sum(path.stat().st_size for name in (STATE, FORMER_STATE) if (path := self.path / name).exists())

    def finish(self) -> None:
        """Drop what only an unfinished run needs."""
        (self.path / FORMER_STATE).unlink(missing_ok=True)

    def _check_config(self, state: Mapping[str, Any], note: Callable[[str], None]) -> None:
        """Refuse the state of a run with other settings."""
        path, written = self.path / STATE, state.get(CONFIG_OF_STATE)
        if written is None:
            note(f"{path} is from an earlier dsui, so it cannot be checked whether it is of this run.")
            return
        try:
            there = _settings(load_json(written if isinstance(written, str) else ""))
        except (ValueError, RecipeError) as error:
            raise RunError(f"{path} does not say which run it is of; choose another --out.") from error
        if differences := _differences(there, self.config):
            raise RunError(
                f"{path} is the checkpoint of another run ({differences}); bring back that of this run, or choose "
                "another --out."
            )

    def save_weights(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """The config joins the metadata as JSON under "config"."""
        weights.save_weights(self.path / WEIGHTS, tensors, {**metadata, "config": json.dumps(self.config.mapping())})

    def log(self, row: Mapping[str, object]) -> None:
        """Append one line. Its end comes last in one write, so a line with an end is whole."""
        path = self.path / LOG
        try:
            append_lines(path, json.dumps(row).encode() + b"\n")
        except OSError as error:
            raise not_written(path, error) from error

    def trim_log(self, step: int) -> None:
        """Drop the rows after `step`, which a resumed run writes again, and a torn last one."""
        log = read_log(self.path / LOG)
        if log.error is not None and not isinstance(log.error, FileNotFoundError):
            raise _unreadable(log.path, log.error) from log.error
        if log.damaged:
            raise RunError(f"{log.path} is damaged in line {log.damaged[0]}; delete that line.")
        kept = (line for line, row in zip(log.lines, log.rows, strict=True) if row.get("step", step) <= step)
        self._write(LOG, b"".join(kept))

    def _write(self, name: str, content: bytes) -> None:
        write_bytes(self.path / name, content)

    def discard(self) -> None:
        """Remove what `create` wrote, for a run that did not begin."""
        for name in (CONFIG, LOG):
            (self.path / name).unlink(missing_ok=True)
        remove_lock(self._lock, self.path / LOCK)
        if self.is_new:
            with contextlib.suppress(OSError):  # it holds other files, perhaps those of a process that came next
                self.path.rmdir()

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(f"{path} cannot be read ({error.strerror}); repair this or choose another --out.")


def read_config(path: Path) -> RunConfig:
    """The config.yaml of a run that any version began."""
    return _parsed(path, RunConfig.from_mapping)


def _read_settings(path: Path) -> dict[str, object]:
    """The settings of a run that any version began: those it did not have yet are at their defaults.

    Keys that only a later version knows are kept, so that they count as a difference.
    """
    return _parsed(path, _settings)


def _parsed(path: Path, parse: Callable[[Any], Parsed]) -> Parsed:
    """What a config.yaml says."""
    try:
        content = read_regular(path, 4 * MOST_CHARACTERS)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        return parse(load_yaml(content.decode()))
    except (ValueError, RecipeError) as error:
        raise RunError(f"{path} is damaged and cannot be compared; restore it or choose another --out.") from error


def _settings(written: Any) -> dict[str, object]:
    """Every setting by its full name; a ValueError or RecipeError where they are not those of a run."""
    known = RunConfig.from_mapping(written).mapping()
    return _flat({**written, **known})


def _differences(there: dict[str, object], config: RunConfig) -> str:
    """What differs between the settings of a run on disk and those of `config`; empty where nothing does."""
    here = _flat(config.mapping())
    differences = (
        f"{shorten(key, 60)}: {_shown(there, key)} there, {_shown(here, key)} here"
        for key in there | here
        if key not in there or key not in here or there[key] != here[key]
    )
    return shorten("; ".join(differences), 300)


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Every setting by its full name: {"options": {"kappa": 16}} is {"options.kappa": 16}, and {} is nothing."""
    flat: dict[str, object] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _shown(settings: Mapping[str, object], key: str) -> str:
    return shorten(json.dumps(settings[key], ensure_ascii=False, default=str), 100) if key in settings else "absent"


def _lock(folder: Path) -> LockFile:
    """The lock of a run, or an error that says who holds it."""
    try:
        return lock_or_refuse(folder / LOCK)
    except BlockingIOError as error:
        holder = "another process" if error.args[0] is None else f"process {error.args[0]}"
        raise RunError(f"{folder} is in use by {holder}; wait until it ends or choose another --out.") from error
    except OSError as error:
        raise RunError(f"{folder} cannot be locked ({error.strerror}); choose another --out.") from error
