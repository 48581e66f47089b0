"""The log of a run, log.jsonl: a line of JSON for each epoch, appended while it trains.

A reader may come while a line is written, after a kill that left half a line, or after a disk damaged some. It takes
the lines that are whole and says which ones it skipped; its caller decides whether that matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from dsui.plain_json import load_json
from dsui.regular_file import read_regular
from dsui.schema import check, fits, number, record, whole

LARGEST = 1 << 28
"""Bytes of a log; an epoch of a large mixture takes 100 kB."""
FIGURE = number(finite=False)
COUNTS = {"epoch": whole(0), "step": whole(0, 1 << 53)}
FIGURES = {"seconds": number(0), "loss": FIGURE, "accuracy": FIGURE}
HELD_OUT = {"held_out_accuracy": number(0, 1), "held_out_loss": FIGURE, "best_epoch": whole(-1)}
ROW = record({}, {**COUNTS, **FIGURES, **HELD_OUT})
EPOCH = record({**COUNTS, **FIGURES})
"""A row with all that the report draws of an epoch."""


@dataclass(frozen=True)
class TrainingLog:
    """What could be read of a log, and what could not."""

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The row's own bytes for each of `rows`, with the line end."""
    damaged: list[int] = field(default_factory=list)
    """Numbers, from 1, of the lines that have an end and are not a row as ROW says."""
    torn: bool = False
    """Whether the last line has no end, so that it may not be whole."""
    error: OSError | None = None
    """Why the file could not be read at all."""

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The rows with all figures of an epoch, those before the accuracy included: the terms of the loss."""
        return [row for row in self.rows if fits(row, EPOCH) and all(fits(row[key], FIGURE) for key in _terms(row))]

    @property
    def problems(self) -> list[str]:
        """A sentence where some lines, or all, could not be read."""
        if self.error is not None:
            return [f"{self.path} cannot be read ({self.error.strerror})."]
        skipped = len(self.damaged) + self.torn
        return [f"Lines of {self.path} that cannot be read: {skipped}."] if skipped else []


def _terms(row: dict[str, Any]) -> Iterable[str]:
    return takewhile(lambda key: key != "accuracy", row)


def read_log(path: Path) -> TrainingLog:
    """The rows of a log that may be missing, torn or damaged."""
    try:
        content = read_regular(path, LARGEST)
    except OSError as error:
        return TrainingLog(path, error=error)
    log = TrainingLog(path, torn=not content.endswith(b"\n") and content != b"")
    for count, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            row = load_json(line)
            check(row, ROW)
        except ValueError:
            row = None
        if isinstance(row, dict):
            log.rows.append(row)
            log.lines.append(line + b"\n")
        else:
            log.damaged.append(count)
    return log
