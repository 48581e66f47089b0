"""Results of finished cells as lines of a file, so that no machine runs a cell again that another one has finished.

    FILE.jsonl     the results rows of every finished cell, appended as soon as it is finished
    FILE.points    for figures that need more than rows: a line of JSON for each cell
    FILE.speeds    how fast the runs were trained (`dsui.experiments.speeds`)

Rows belong to a cell if they name its run, whose name ends in a hash of the whole configuration, and the method that
predicts. The cell is finished if there are rows for all its tasks, foreign sets, attacks and detectors. Of several
runs of one name the last whole one counts, and damaged lines do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow, append, read
from dsui.experiments.cell_run import CellResult
from dsui.experiments.grid import Cell
from dsui.runs.files import append_lines, wait_for_lock
from dsui.score_table import detector_scores

POINTS = ".points"
ONLY_SET = {"misclassification": None, "open-set": "unknown", "noise": "noise"}
"""What the rows of tasks without a choice of sets name as foreign."""
Runs = dict[str, list[ResultRow]]
"""The rows of runs of one name, by their weights."""


class FinishedCells:
    """The rows and points in the files `sources`. New ones are appended to `kept`, which may be one of them."""

    def __init__(self, kept: Path, sources: Sequence[Path] = ()) -> None:
        self.kept, self.sources = kept, tuple(sources)

    def find(self, cell: Cell) -> CellResult | None:
        """The result of a cell; None if it is not finished."""
        points = self._points.get(_figure_key(cell)) if cell.figure else []
        if points is None:
            return None
        for rows in reversed(self._rows.get((cell.run_name, cell.predictor), {}).values()):
            chosen = _rows_of(cell, rows)
            if _are_whole(cell, chosen):
                return CellResult(chosen, points)
        return None

    def append(self, cell: Cell, result: CellResult) -> None:
        """Add a finished cell; several processes may do so at once, and a kill leaves no half of it."""
        try:
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            with wait_for_lock(self.kept.with_name(f".{self.kept.name}.lock")):
                if cell.figure:
                    line = json.dumps([*_figure_key(cell), result.points])
                    append_lines(self.kept.with_suffix(POINTS), line.encode() + b"\n")
                append(self.kept, result.rows)
        except OSError as error:
            raise DsuiError(
                f"{self.kept} could not be written ({error.strerror}); remove the cause and run this again."
            ) from error

    @cached_property
    def _rows(self) -> dict[tuple[str, str], Runs]:
        rows, problems = read(self.sources)
        if problems and not rows:
            raise DsuiError(f"{problems[0]} Name files of results rows.")
        found: dict[tuple[str, str], Runs] = {}
        for row in rows:
            found.setdefault((row.run, row.method), {}).setdefault(row.identity, []).append(row)
        return found

    @cached_property
    def _points(self) -> dict[tuple[object, ...], list[dict[str, Any]]]:
        found = {}
        for path in (source.with_suffix(POINTS) for source in self.sources):
            for line in path.read_bytes().splitlines() if path.exists() else ():
                with suppress(ValueError, TypeError, RecursionError):  # a damaged line: its cell is evaluated again
                    *key, points = json.loads(line)
                    found[tuple(key)] = list(points)
        return found


def files_of_rows(paths: Iterable[Path]) -> list[Path]:
    """The files that --results names: a folder stands for its .jsonl files."""
    found = []
    for path in paths:
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside or not path.exists():
            raise DsuiError(f"{path} {'holds no .jsonl file' if path.exists() else 'is missing'}; name results rows.")
        found += inside
    return found


class _Place(NamedTuple):
    """What a row is about: `accuracy` rows come with those of misclassification."""

    task: str
    foreign: str | float | None


def _rows_of(cell: Cell, rows: Iterable[ResultRow]) -> list[ResultRow]:
    """The rows that the cell asks for, each once; a later row replaces an earlier one."""
    places = _places(cell)
    chosen = {(row.task, row.foreign, row.score): row for row in rows if _place(row) in places}
    return list(chosen.values())


def _are_whole(cell: Cell, rows: Sequence[ResultRow]) -> bool:
    scores = {row.score for row in rows}
    return _places(cell) <= set(map(_place, rows)) and all(detector_scores(d)[0] in scores for d in cell.detectors)


def _place(row: ResultRow) -> _Place:
    return _Place("misclassification" if row.task == "accuracy" else row.task, row.foreign)


def _places(cell: Cell) -> set[_Place]:
    several: dict[str, Sequence[str | float]] = {"ood": cell.foreign, "fgsm": cell.epsilons}
    return {_Place(task, foreign) for task in cell.tasks for foreign in several.get(task, (ONLY_SET.get(task),))}


def _figure_key(cell: Cell) -> tuple[object, ...]:
    return cell.run_name, cell.predictor, cell.figure, ", ".join(cell.foreign)
