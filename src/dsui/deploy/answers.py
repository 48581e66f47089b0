"""A folder of answers that grows: rows of predictions in Parquet files, whole from the moment they have their names.

    FOLDER/_answers.json              which model and thresholds answer here
    FOLDER/part-000000.parquet, ...   rows of some thousand files

Whoever reads a folder of Parquet passes over names that begin with _ or a dot, so the folder reads as one table. A job
that goes on finds in the column `file` what is answered. One process writes at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsui.errors import DsuiError, RunError
from dsui.excerpt import shorten
from dsui.plain_json import load_json
from dsui.regular_file import read_regular
from dsui.runs.files import lock_or_refuse, write_atomic, write_bytes
from dsui.schema import check, record, text

if TYPE_CHECKING:
    import pyarrow as pa

    from dsui.runtime.rows import PredictionRow

JOB, LOCK = "_answers.json", ".lock"
LARGEST_JOB = 1 << 16
BATCHES, SECONDS = 32, 30.0
"""A file is written after so many batches, or so long after the one before; a job that is killed loses no more."""
PARTS = re.compile(r"part-(\d{6,})\.parquet")
DIGEST = 16
"""Bytes that stand for the name of a file; two of a billion names share theirs with a chance of 1e-21."""
TEXTS = ("file", "label", "decision", "reason", "error")
KEPT = record({"model": text(), "decides": text(4096)})


def shown_name(file: Path) -> str:
    """A file's name as a text in UTF-8; bytes that are none become escapes."""
    return os.fsencode(file).decode(errors="backslashreplace")


class Answered:
    """The names that have rows, in 16 bytes each."""

    def __init__(self, digests: NDArray[np.bytes_]) -> None:
        self.digests = digests

    @classmethod
    def of(cls, names: Iterable[str]) -> Answered:
        """Of names in any order."""
        found = np.fromiter(map(_digest, names), dtype=f"S{DIGEST}")
        return cls(np.sort(found))

    def __len__(self) -> int:
        return len(self.digests)

    def __contains__(self, name: str) -> bool:
        digest = np.array(_digest(name), dtype=self.digests.dtype)
        place = int(np.searchsorted(self.digests, digest))
        return place < len(self.digests) and bool(self.digests[place] == digest)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=DIGEST).digest()


class AnswerFolder:
    """An opened folder, to which `append` adds rows; `answered` are those that were there."""

    def __init__(self, path: Path, model: str, decides: str) -> None:
        self.path = path
        self._check_job({"model": model, "decides": decides})
        parts = self._parts()
        self._next = max(parts, default=-1) + 1
        self.answered = Answered.of(name for part in parts.values() for name in _names(part))

    def write(self, batches: Iterable[list[PredictionRow]]) -> Generator[list[PredictionRow], None, None]:
        """The same batches, which are in files soon after they are given on; all are at the end, also after an error
        and Ctrl-C."""
        waiting: list[list[PredictionRow]] = []
        written = time.monotonic()
        try:
            for rows in batches:
                waiting.append(rows)
                if len(waiting) >= BATCHES or time.monotonic() - written >= SECONDS:
                    self._append(waiting)
                    written = time.monotonic()
                yield rows
        finally:
            self._append(waiting)

    def _append(self, waiting: list[list[PredictionRow]]) -> None:
        """Empty the list into a file."""
        from pyarrow import parquet

        if not waiting:
            return
        table, name = _table([row for rows in waiting for row in rows]), f"part-{self._next:06}.parquet"
        try:
            write_atomic(
                self.path / name, lambda stream: parquet.write_table(table, stream), self.path / f".{name}.tmp"
            )
        except RunError as error:
            why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise DsuiError(
                f"{self.path / name} cannot be written ({why}); make room, and the same command continues."
            ) from error
        waiting.clear()
        self._next += 1

    def _check_job(self, job: dict[str, str]) -> None:
        """Write which job this is, or see that it is the one that was begun."""
        file = self.path / JOB
        if not file.exists():
            if any(not each.startswith(".") for each in os.listdir(self.path)):
                raise DsuiError(f"{self.path} holds other files; choose a new --out.")
            write_bytes(file, json.dumps(job).encode())
            return
        try:
            found: Any = load_json(read_regular(file, LARGEST_JOB))
            check(found, KEPT)
        except (OSError, ValueError) as error:
            raise DsuiError(f"{file} cannot be used ({shorten(error)}); choose a new --out.") from error
        for key, what in (("model", "model"), ("decides", "threshold")):
            if found[key] != job[key]:
                raise DsuiError(f"{self.path} was begun with another {what}; choose a new --out.")

    def _parts(self) -> dict[int, Path]:
        found = {int(match[1]): each for each in os.listdir(self.path) if (match := PARTS.fullmatch(each))}
        return {number: self.path / found[number] for number in sorted(found)}


@contextmanager
def opened(path: Path, model: str, decides: str) -> Iterator[AnswerFolder]:
    """The folder, which is made if need be, while no other process has it; `model` and `decides` say what answers."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = lock_or_refuse(path / LOCK)
    except BlockingIOError as error:
        raise DsuiError(
            f"{path} is being written by another process; wait until it ends, or choose another --out."
        ) from error
    except OSError as error:
        raise DsuiError(f"{path} cannot be written ({error.strerror}); choose another --out.") from error
    with lock:
        yield AnswerFolder(path, model, decides)


def _names(part: Path) -> list[str]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names: list[str] = parquet.read_table(part, columns=["file"])["file"].to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DsuiError(
            f"{part} cannot be read ({shorten(error)}); delete it, and its files are answered again."
        ) from error
    return names


def _table(rows: Sequence[PredictionRow]) -> pa.Table:
    """Columns as `PredictionRow.record` names them."""
    import pyarrow as pa

    records = [row.record() for row in rows]
    schema = pa.schema([(name, pa.string() if name in TEXTS else pa.float64()) for name in records[0]])
    return pa.Table.from_pylist([each | {"file": shown_name(Path(str(each["file"])))} for each in records], schema)
