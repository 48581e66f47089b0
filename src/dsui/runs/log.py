"""The log of a run, log.jsonl: a line of JSON for each epoch, appended while it trains.

A reader may come while a line is written, after a kill that left half a line, or after a disk damaged some. It takes
the lines that are whole and says which ones it skipped; its caller decides whether that matters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrainingLog:
    """What could be read of a log, and what could not."""

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The row's own bytes for each of `rows`, with the line end."""
    damaged: list[int] = field(default_factory=list)
    """Numbers, from 1, of the lines that have an end and are not a JSON object."""
    torn: bool = False
    """Whether the last line has no end, so that it may not be whole."""
    error: OSError | None = None
    """Why the file could not be read at all."""

    @property
    def problems(self) -> list[str]:
        """A sentence where some lines, or all, could not be read."""
        if self.error is not None:
            return [f"{self.path} cannot be read ({self.error.strerror})."]
        skipped = len(self.damaged) + self.torn
        return [f"Lines of {self.path} that cannot be read: {skipped}."] if skipped else []


def read_log(path: Path) -> TrainingLog:
    """The rows of a log that may be missing, torn or damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return TrainingLog(path, error=error)
    log = TrainingLog(path, torn=not content.endswith(b"\n") and content != b"")
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            log.rows.append(row)
            log.lines.append(line + b"\n")
        else:
            log.damaged.append(number)
    return log
