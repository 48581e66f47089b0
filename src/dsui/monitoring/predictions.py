"""The rows of `dsui predict`, in order, from a .csv or .jsonl file; the labels that came later, from a .csv file."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dsui.errors import DataError
from dsui.excerpt import excerpt
from dsui.spreadsheet import FORMULA

NEEDED = ("file", "label", "uncertainty", "decision", "error")
"""Columns that every row of predictions has."""
DENSITY = "log_density"
"""Its column holds the density, and the score of that name is minus the density."""
NO_SCORES = {"file", "label", "probability", "decision", "reason", "error"}


@dataclass
class Predictions:
    """Of `images` rows without an error: names, predicted labels, `decisions` (None: there was no threshold) and
    `scores` by name. `skipped` rows had an error."""

    files: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    decisions: list[bool | None] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)
    skipped: int = 0

    @property
    def images(self) -> int:
        return len(self.files)

    def add(self, row: Mapping[str, object], where: str) -> None:
        """Take the next row; `where` it is, for messages."""
        if missing := [name for name in NEEDED if name not in row]:
            raise DataError(f"{where} has no column {missing[0]}; name a file that `dsui predict` wrote.")
        if row["error"]:
            self.skipped += 1
            return
        decision = row["decision"] or None
        if decision not in {None, "accept", "reject"}:
            raise DataError(f"{where} has the decision {excerpt(decision)}; it must be accept, reject or empty.")
        names = [name for name in row if name not in NO_SCORES and row[name] not in {None, ""}]
        if self.images and set(names) != set(self.scores):
            raise DataError(f"{where} has other scores than the rows before it; write them by one `dsui predict`.")
        for name in names:
            value = _number(row[name], f"{where}: {name}")
            self.scores.setdefault(name, []).append(-value if name == DENSITY else value)
        self.files.append(str(row["file"]))
        self.labels.append(str(row["label"]))
        self.decisions.append(None if decision is None else decision == "accept")


def read_predictions(path: Path) -> Predictions:
    """The rows of a file; a DataError that names the line where one cannot be used."""
    found = Predictions()
    for number, row in _rows(path):
        found.add(row, f"line {number:,} of {path}")
    return found


def read_labels(path: Path) -> dict[str, str]:
    """The true classes of files, from a .csv or .jsonl file with the columns `file` and `label`."""
    found: dict[str, str] = {}
    for number, row in _rows(path):
        if "file" not in row or "label" not in row:
            raise DataError(f"line {number:,} of {path} has no file or no label; write the columns file and label.")
        found[str(row["file"])] = str(row["label"])
    return found


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The number of each line and its values by name."""
    kind = path.suffix.lower()
    if kind not in {".csv", ".jsonl"}:
        raise DataError(f"{path} is neither .csv nor .jsonl; name a file that `dsui predict --out` wrote.")
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            if kind == ".csv":
                for row in (reader := csv.DictReader(stream, strict=True)):
                    if None in row or None in row.values():
                        raise DataError(f"line {reader.line_num:,} of {path} is cut off or too long.")
                    yield reader.line_num, {name: _plain(value) for name, value in row.items()}
            else:
                for number, line in enumerate(stream, 1):
                    values = json.loads(line)
                    if not isinstance(values, dict):
                        raise DataError(f"line {number:,} of {path} is {excerpt(values)}; it must be a JSON object.")
                    yield number, values
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); name a file that `dsui predict` wrote.") from error
    except (csv.Error, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not whole {kind[1:].upper()}; name a file that `dsui predict` wrote.") from error


def _plain(value: str) -> str:
    """Text without the apostrophe that keeps spreadsheets from running it."""
    return value[1:] if value.startswith("'") and value[1:].startswith(FORMULA) else value


def _number(value: object, where: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        if value is None:
            return math.nan
        raise DataError(f"{where} is {excerpt(value)}; it must be a number.") from error
