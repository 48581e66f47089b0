"""A grid that is run in a folder, cell by cell, so that it can be stopped and changed at any time.

    OUT/runs/NAME/         the trained runs
    OUT/cells/KEY.json     one cell: its identity, and its results or the reason why it failed
    OUT/results.jsonl      the rows of all cells that are done: appended cell by cell, at the end in the grid's order
    OUT/results.speeds     how fast runs were trained

A cell is done when its file holds rows, or when they were made elsewhere (`dsui.experiments.finished`). KEY is a hash
of the configuration of run and evaluation, so a study of a changed grid runs only the cells that changed. Cells that
share a run form one job: one process trains the run once and evaluates them all.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsui.data.folder import is_split
from dsui.data.registry import FOLDER, dataset_info, default_root, folder_path
from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow
from dsui.experiments import estimate
from dsui.experiments.cell_run import CellResult, RunContext, evaluate, train
from dsui.experiments.estimate import Estimate
from dsui.experiments.finished import FinishedCells
from dsui.experiments.grid import Cell, Grid, Job
from dsui.experiments.speeds import SPEEDS, Machine, Speed, append_speed, read_speeds, shipped_speeds, work_of
from dsui.runs.files import lock_or_refuse, not_written, write_bytes
from dsui.runs.folder import CONFIG, RESULTS, WEIGHTS
from dsui.training.loop import InterruptedRun
from dsui.training.memory import release

CellFinished = Callable[[Cell, float], None]
"""Called after every cell, whether it is done or failed, with its seconds."""
CELLS, RUNS, LOCK = "cells", "runs", ".study.lock"


class State(NamedTuple):
    """`kind` is "done", "trained", "half-done", "to do", "failed" or "data missing"; `detail` is text for people."""

    kind: str
    detail: str = ""


class Study:
    """`runs` is the folder of the trained runs; studies with the same folder share runs of equal configuration.

    `cells` is the folder of the cells. `finished` holds results of cells that were finished elsewhere, and gets those
    of new ones; by default new ones are appended to OUT/results.jsonl.
    """

    def __init__(
        self,
        grid: Grid,
        out: Path,
        root: Path | None = None,
        runs: Path | None = None,
        *,
        cells: Path | None = None,
        finished: FinishedCells | None = None,
    ) -> None:
        self.grid, self.out, self.root = grid, out, root
        self.runs = out / RUNS if runs is None else runs
        self.cells = out / CELLS if cells is None else cells
        self.finished = FinishedCells(out / RESULTS) if finished is None else finished
        self._records: dict[str, tuple[object, dict[str, Any]]] = {}

    def run_path(self, cell: Cell) -> Path:
        return self.runs / cell.run_name

    def cell_path(self, cell: Cell) -> Path:
        return self.cells / f"{cell.key}.json"

    @contextmanager
    def lead(self) -> Iterator[None]:
        """Keep other studies away from the runs: two of them would train the same ones, or find them locked."""
        path = self.runs / LOCK
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            lock = lock_or_refuse(path)
        except BlockingIOError as error:
            holder = "another study" if error.args[0] is None else f"the study of process {error.args[0]}"
            raise DsuiError(
                f"the runs in {self.runs} are in use by {holder}; wait until it ends, or choose another --runs."
            ) from error
        except OSError as error:
            raise not_written(path, error) from error
        with lock:
            yield

    def record(self, cell: Cell) -> dict[str, Any]:
        """What the file of a cell holds: "rows" and "points", or "error".

        It is empty for a cell that has not run, and for a damaged file, so that the cell is evaluated again. The file
        is read again only when it has changed.
        """
        path = self.cell_path(cell)
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if cell.key in self._records and self._records[cell.key][0] == stamp:
                return self._records[cell.key][1]
            found = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        record = found if _is_valid(found) else {}
        self._records[cell.key] = (stamp, record)
        return record

    def done(self, cell: Cell) -> bool:
        return "rows" in self.record(cell) or self.finished.find(cell) is not None

    def result(self, cell: Cell) -> CellResult:
        """Empty if the cell is not done."""
        record = self.record(cell)
        if "rows" in record:
            return CellResult([ResultRow.from_json(json.dumps(row)) for row in record["rows"]], record["points"])
        return self.finished.find(cell) or CellResult([], [])

    def missing_data(self, cell: Cell) -> tuple[str, ...]:
        """The data sets that the cell needs and that are not on this machine."""
        return tuple(name for name, splits in cell.required_data.items() if not self._is_present(name, splits))

    def state(self, cell: Cell) -> State:
        if self.done(cell):
            return State("done")
        record = self.record(cell)
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

    def jobs(self, cells: Iterable[Cell], *, without_data: bool = False) -> list[Job]:
        """The cells that are not done and whose data are there, grouped by their runs; `without_data` also others."""
        grouped: dict[str, list[Cell]] = {}
        for cell in {each.key: each for each in cells}.values():
            if not self.done(cell) and (without_data or not self.missing_data(cell)):
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
            if time.time() >= context.ends_at:
                raise InterruptedRun(f"the time is over before the evaluation of {cell.name}.")
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
        data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        _write(self.out / name, data)

    def estimates(self, jobs: Sequence[Job], machine: Machine, speeds: Sequence[Speed]) -> list[Estimate | None]:
        """How long each job still takes; None if unknown."""
        runs = {cell.run_name: (self.run_path(cell), cell.config) for cell in self.grid.cells}
        rates = estimate.measure_rates(runs.values())
        return [
            estimate.remaining(
                cell.config, estimate.run_progress(self.run_path(cell), cell.config), rates, machine, speeds
            )
            for cell, *_ in jobs
        ]

    def speeds(self) -> list[Speed]:
        """The shipped measurements and, after them, those beside the rows that were made elsewhere and here."""
        files = dict.fromkeys(path.with_suffix(SPEEDS) for path in (*self.finished.sources, self.finished.kept))
        return [*shipped_speeds(), *(speed for path in files for speed in read_speeds(path))]

    def note_speed(self, job: Job, machine: Machine, seconds: float) -> None:
        """Keep how fast a run was trained on this machine, if it began and ended within these seconds."""
        config, run = job[0].config, self.run_path(job[0])
        training, rate = estimate.logged_seconds(run), estimate.images_per_second(run, config)
        if rate is None or not (run / WEIGHTS).exists() or (run / CONFIG).stat().st_mtime < time.time() - seconds:
            return
        facts = (machine.device, config.backbone, config.method, machine.mode, machine.together, config.size)
        measured = (round(work_of(config), 4), round(rate, 1), round(seconds - training, 1))
        append_speed(
            self.finished.kept.with_suffix(SPEEDS), Speed(*facts, *measured, f"{config.data}, {config.recipe.name}")
        )

    def _evaluate(self, cell: Cell, context: RunContext) -> None:
        result = evaluate(cell, self.run_path(cell), context)
        self.finished.append(cell, result)
        rows = [json.loads(row.to_json()) for row in result.rows]
        self._write_cell(cell, {"rows": rows, "points": result.points})

    def _write_cell(self, cell: Cell, content: dict[str, Any]) -> None:
        _write(self.cell_path(cell), json.dumps({"name": cell.name, "cell": cell.identity, **content}).encode())

    def _is_present(self, name: str, splits: tuple[str, ...]) -> bool:
        if name.startswith(FOLDER):
            folder = folder_path(name)
            return folder.is_dir() and not missing_splits(folder, splits)
        return set(splits) <= set(dataset_info(name).present(self.root or default_root()))


def missing_splits(folder: Path, splits: Iterable[str]) -> list[str]:
    """Which of the splits have no folder, where the user has split the images; all others are split by a rule."""
    return [split for split in splits if is_split(folder) and not (folder / split).is_dir()]


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(path, error) from error
    write_bytes(path, content)


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
