"""A grid that is run in a folder, cell by cell, so that it can be stopped and changed at any time.

    OUT/runs/NAME/         the trained runs
    OUT/cells/KEY.json     one cell: its identity, and its results or the reason why it failed
    OUT/results.jsonl      the rows of all cells that are done

A cell is done when its file holds rows. KEY is a hash of the configuration of run and evaluation, so a study of a
changed grid runs only the cells that changed. Cells that share a run form one job: one process trains the run once and
evaluates them all.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsui.data.registry import FOLDER, dataset_info, default_root, folder_path
from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow
from dsui.experiments import estimate
from dsui.experiments.cell_run import CellResult, RunContext, evaluate, train
from dsui.experiments.grid import Cell, Grid
from dsui.runs.files import not_written, write_atomic
from dsui.runs.folder import RESULTS
from dsui.training.loop import InterruptedRun
from dsui.training.memory import release

Job = tuple[Cell, ...]
"""Cells that share a run."""
CellFinished = Callable[[Cell, float], None]
"""Called after every cell, whether it is done or failed, with its seconds."""
CELLS, RUNS = "cells", "runs"


class State(NamedTuple):
    """`kind` is "done", "trained", "half-done", "to do", "failed" or "data missing"; `detail` is text for people."""

    kind: str
    detail: str = ""


class Study:
    """`runs` is the folder of the trained runs; studies with the same folder share runs of equal configuration."""

    def __init__(self, grid: Grid, out: Path, root: Path | None = None, runs: Path | None = None) -> None:
        self.grid, self.out, self.root = grid, out, root
        self.runs = out / RUNS if runs is None else runs

    def run_path(self, cell: Cell) -> Path:
        return self.runs / cell.run_name

    def cell_path(self, cell: Cell) -> Path:
        return self.out / CELLS / f"{cell.key}.json"

    def record(self, cell: Cell) -> dict[str, Any]:
        """What the file of a cell holds: "rows" and "points", or "error".

        It is empty for a cell that has not run, and for a damaged file, so that the cell is evaluated again.
        """
        try:
            found = json.loads(self.cell_path(cell).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return found if _is_valid(found) else {}

    def done(self, cell: Cell) -> bool:
        return "rows" in self.record(cell)

    def result(self, cell: Cell) -> CellResult:
        """Empty if the cell is not done."""
        record = self.record(cell)
        rows = [ResultRow.from_json(json.dumps(row)) for row in record.get("rows", [])]
        return CellResult(rows, record.get("points", []))

    def missing_data(self, cell: Cell) -> tuple[str, ...]:
        """The data sets that the cell needs and that are not on this machine."""
        return tuple(name for name, splits in cell.required_data.items() if not self._is_present(name, splits))

    def state(self, cell: Cell) -> State:
        record = self.record(cell)
        if "rows" in record:
            return State("done")
        if names := self.missing_data(cell):
            return State("data missing", ", ".join(names))
        if "error" in record:
            return State("failed", record["error"])
        progress = estimate.run_progress(self.run_path(cell), cell.config)
        if progress is None:
            return State("to do")
        if progress.trained:
            return State("trained")
        return State(
            "half-done", f"step {progress.step} of {progress.steps}" if progress.steps else "in its first epoch"
        )

    def jobs(self, cells: Iterable[Cell]) -> list[Job]:
        """The cells that are not done and whose data are there, grouped by their runs."""
        grouped: dict[str, list[Cell]] = {}
        for cell in {each.key: each for each in cells}.values():
            if not self.done(cell) and not self.missing_data(cell):
                grouped.setdefault(cell.run_name, []).append(cell)
        return [tuple(job) for job in grouped.values()]

    def run(self, job: Job, context: RunContext, finished: CellFinished) -> None:
        """Train and evaluate the cells of a job. Errors are written to the files of the cells; only an interruption by
        the user is raised."""
        began, run = time.monotonic(), self.run_path(job[0])
        todo = [cell for cell in job if not self.done(cell)]
        self.clear_failures(job)
        training_failure = _attempt(lambda: train(job[0], run, context), context.device)
        for cell in todo:
            if failure := training_failure or _attempt(partial(self._evaluate, cell, context), context.device):
                self.fail(cell, *failure)
            now = time.monotonic()
            finished(cell, now - began)
            began = now

    def clear_failures(self, job: Job) -> None:
        """Delete why cells failed before, so that it is not taken for the reason of the next failure."""
        for cell in job:
            if not self.done(cell):
                self.cell_path(cell).unlink(missing_ok=True)

    def fail(self, cell: Cell, sentence: str, trace: str = "") -> None:
        """Write down why a cell failed."""
        if not self.done(cell):  # another process may have finished it in the meantime
            self._write_cell(cell, {"error": sentence, "traceback": trace})

    def collect(self) -> list[ResultRow]:
        """All rows of the study in the order of the grid, which are also written to results.jsonl."""
        unique = {cell.key: cell for cell in self.grid.cells}.values()
        rows = [row for cell in unique for row in self.result(cell).rows]
        self.write(RESULTS, "".join(f"{row.to_json()}\n" for row in rows))
        return rows

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the study, completely or not at all."""
        path = self.out / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(path, error) from error
        data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        write_atomic(path, lambda stream: stream.write(data))

    def training_seconds(self, jobs: Sequence[Job]) -> list[float | None]:
        """How long the run of each job still trains; None if unknown."""
        runs = {cell.run_name: (self.run_path(cell), cell.config) for cell in self.grid.cells}
        rates = estimate.measure_rates(runs.values())
        return [
            estimate.remaining_seconds(cell.config, estimate.run_progress(self.run_path(cell), cell.config), rates)
            for cell, *_ in jobs
        ]

    def _evaluate(self, cell: Cell, context: RunContext) -> None:
        rows, points = evaluate(cell, self.run_path(cell), context)
        self._write_cell(cell, {"rows": [json.loads(row.to_json()) for row in rows], "points": points})

    def _write_cell(self, cell: Cell, content: dict[str, Any]) -> None:
        self.write(f"{CELLS}/{cell.key}.json", json.dumps({"name": cell.name, "cell": cell.identity, **content}))

    def _is_present(self, name: str, splits: tuple[str, ...]) -> bool:
        if name.startswith(FOLDER):
            return folder_path(name).is_dir()  # whether it has the splits is checked when it is read
        return set(splits) <= set(dataset_info(name).present(self.root or default_root()))


def _is_valid(record: object) -> bool:
    """Whether a record holds at least one row and only rows, or an error; every task gives at least one row."""
    match record:
        case {"rows": [_, *_] as rows, "points": list(points)}:
            return all(map(_is_row, rows)) and all(isinstance(point, dict) for point in points)
        case {"error": str()}:
            return True
    return False


def _is_row(row: object) -> bool:
    try:
        ResultRow.from_json(json.dumps(row))
    except ValueError:
        return False
    return True


class _Failure(NamedTuple):
    sentence: str
    trace: str


def _attempt(work: Callable[[], None], device: torch.device) -> _Failure | None:
    try:
        work()
    except InterruptedRun:
        raise
    except Exception as error:
        explained = isinstance(error, DsuiError | ValueError)
        first_line = (str(error).splitlines() or [""])[0]
        sentence = first_line if explained else f"{type(error).__name__}: {first_line}"
        return _Failure(sentence, traceback.format_exc())
    finally:
        if device.type == "cuda":
            release()  # the trained network, its CUDA graph, and what a failure for lack of memory left behind
    return None
