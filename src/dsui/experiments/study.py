"""A grid carried out in a folder, cell by cell, so that it can be stopped and changed at any time.

    OUT/runs/NAME/         the trained runs
    OUT/cells/KEY.json     one cell: its identity, and its results or why it failed
    OUT/results.jsonl      the rows of all cells that are done

A cell is done when its file holds rows. KEY hashes the configuration of run and evaluation, so a changed grid runs what
changed and finds the rest. Cells that share a run are one job: it is trained once, by one process.
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
from dsui.experiments.cell_run import Conditions, Outcome, evaluate, train
from dsui.experiments.grid import Cell, Grid
from dsui.runs.files import not_written, write_atomic
from dsui.runs.folder import RESULTS
from dsui.training.loop import InterruptedRun
from dsui.training.memory import release

Job = tuple[Cell, ...]
Told = Callable[[Cell, float], None]
"""Hears of every cell that ended, well or not, and of its seconds."""
CELLS, RUNS = "cells", "runs"


class State(NamedTuple):
    """`kind`: "done", "trained", "half-done", "to do", "failed" or "data missing"; `detail` is for people."""

    kind: str
    detail: str = ""


class Study:
    """`runs` is the folder of the trained runs; studies that share it share runs of equal configuration."""

    def __init__(self, grid: Grid, out: Path, root: Path | None = None, runs: Path | None = None) -> None:
        self.grid, self.out, self.root = grid, out, root
        self.runs = out / RUNS if runs is None else runs

    def run_path(self, cell: Cell) -> Path:
        return self.runs / cell.run

    def cell_path(self, cell: Cell) -> Path:
        return self.out / CELLS / f"{cell.key}.json"

    def record(self, cell: Cell) -> dict[str, Any]:
        """What is written of a cell: "rows" and "points", or "error"; empty before it has ended, and where its file is
        damaged, so that it is evaluated again."""
        try:
            found = json.loads(self.cell_path(cell).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return found if _whole(found) else {}

    def done(self, cell: Cell) -> bool:
        return "rows" in self.record(cell)

    def outcome(self, cell: Cell) -> Outcome:
        """Of a cell that is done, else empty."""
        record = self.record(cell)
        rows = [ResultRow.from_json(json.dumps(row)) for row in record.get("rows", [])]
        return Outcome(rows, record.get("points", []))

    def absent(self, cell: Cell) -> tuple[str, ...]:
        """The data sets it needs that are not there."""
        return tuple(name for name, splits in cell.sets.items() if not self._present(name, splits))

    def state(self, cell: Cell) -> State:
        record = self.record(cell)
        if "rows" in record:
            return State("done")
        if names := self.absent(cell):
            return State("data missing", ", ".join(names))
        if "error" in record:
            return State("failed", record["error"])
        done = estimate.progress(self.run_path(cell), cell.config)
        if done is None:
            return State("to do")
        if done.trained:
            return State("trained")
        return State("half-done", f"step {done.step} of {done.steps}" if done.steps else "in its first epoch")

    def jobs(self, cells: Iterable[Cell]) -> list[Job]:
        """The cells that can be run and are not done, those of one run together."""
        grouped: dict[str, list[Cell]] = {}
        for cell in {each.key: each for each in cells}.values():
            if not self.done(cell) and not self.absent(cell):
                grouped.setdefault(cell.run, []).append(cell)
        return [tuple(job) for job in grouped.values()]

    def run(self, job: Job, conditions: Conditions, told: Told) -> None:
        """Carry out a job; what fails is written down, and only a wish to stop leaves this method."""
        began, run = time.monotonic(), self.run_path(job[0])
        todo = [cell for cell in job if not self.done(cell)]
        self.forget(job)
        untrained = _attempt(lambda: train(job[0], run, conditions), conditions.device)
        for cell in todo:
            if failure := untrained or _attempt(partial(self._evaluate, cell, conditions), conditions.device):
                self.fail(cell, *failure)
            now = time.monotonic()
            told(cell, now - began)
            began = now

    def forget(self, job: Job) -> None:
        """Why its cells failed before, which is no reason of the attempt that begins."""
        for cell in job:
            if not self.done(cell):
                self.cell_path(cell).unlink(missing_ok=True)

    def fail(self, cell: Cell, sentence: str, trace: str = "") -> None:
        if not self.done(cell):  # as another process may have left it meanwhile
            self._write(cell, {"error": sentence, "traceback": trace})

    def collect(self) -> list[ResultRow]:
        """All rows that there are, in the order of the grid; written to results.jsonl as well."""
        unique = {cell.key: cell for cell in self.grid.cells}.values()
        rows = [row for cell in unique for row in self.outcome(cell).rows]
        self.write(RESULTS, "".join(f"{row.to_json()}\n" for row in rows))
        return rows

    def write(self, name: str, text: str) -> None:
        """A file of the study, whole or not at all."""
        path = self.out / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(path, error) from error
        write_atomic(path, lambda stream: stream.write(text.encode()))

    def training_seconds(self, jobs: Sequence[Job]) -> list[float | None]:
        """What each job's run still needs."""
        known = estimate.rates({cell.run: (self.run_path(cell), cell.config) for cell in self.grid.cells}.values())
        return [
            estimate.remaining_seconds(cell.config, estimate.progress(self.run_path(cell), cell.config), known)
            for cell, *_ in jobs
        ]

    def _evaluate(self, cell: Cell, conditions: Conditions) -> None:
        rows, points = evaluate(cell, self.run_path(cell), conditions)
        self._write(cell, {"rows": [json.loads(row.to_json()) for row in rows], "points": points})

    def _write(self, cell: Cell, content: dict[str, Any]) -> None:
        self.write(f"{CELLS}/{cell.key}.json", json.dumps({"name": cell.name, "cell": cell.identity, **content}))

    def _present(self, name: str, splits: tuple[str, ...]) -> bool:
        if name.startswith(FOLDER):
            return folder_path(name).is_dir()  # what it lacks is told by whoever reads it
        return set(splits) <= set(dataset_info(name).present(self.root or default_root()))


def _whole(record: object) -> bool:
    """Whether it holds at least one row and nothing but rows, or a reason; every task answers with rows."""
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
        first = (str(error).splitlines() or [""])[0]
        return _Failure(first if explained else f"{type(error).__name__}: {first}", traceback.format_exc())
    finally:
        if device.type == "cuda":
            release()  # a trained network, its graph and what failed for want of memory
    return None
