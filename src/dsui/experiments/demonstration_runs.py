"""The runs of `dsui demo`: a study of the grid demo.yaml in a few parallel processes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from dsui.errors import DsuiError, RunError
from dsui.experiments import engines
from dsui.experiments.grid import Cell, Job
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import Study
from dsui.runs.files import write_atomic
from dsui.runs.folder import LOG
from dsui.runs.log import read_log

GRID, LOGS = "demo.yaml", "logs"
MOST_PROCESSES = 4


def open_study(out: Path, seeds: int) -> Study:
    """The study in `out`, new or continued; its grid is written there as a file, for other processes and the user."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / GRID, lambda stream: stream.write(grid_text(seeds).encode()))
    except (OSError, RunError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        why = getattr(cause, "strerror", cause)
        raise DsuiError(f"{out} cannot be written to ({why}); choose another --out.") from error
    return Study(load_grid(str(out / GRID)), out)


def grid_text(seeds: int) -> str:
    """The shipped grid with the seeds 0, 1, ..."""
    text = (resources.files("dsui.experiments") / "grids" / GRID).read_text(encoding="utf-8")
    return re.sub(r"^seeds: .*$", f"seeds: {list(range(seeds))}", text, flags=re.MULTILINE)


def run_jobs(study: Study, jobs: Sequence[Job], progress: Callable[[float], None]) -> None:
    """Run all jobs; `progress` is called with the completed fraction of the study."""
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    command = [sys.executable, "-m", "dsui", "reproduce", str(study.out / GRID), "--out", str(study.out)]
    logs = study.out / LOGS
    if not engines.run_in_processes(
        split_evenly(jobs, processes),
        [*command, "--device", "cpu"],
        processes,
        logs=logs,
        job_finished=lambda *_: None,
        poll=lambda: progress(completed_fraction(study)),
    ):
        raise KeyboardInterrupt
    if failed := [cell for cell in study.grid.cells if not study.done(cell)]:
        why = study.record(failed[0]).get("error", "its process died.")
        raise DsuiError(
            f"{len(failed)} of {len(study.grid.cells)} runs failed; {failed[0].name}: {why} More is in {logs}; "
            "the same command tries again."
        )


def split_evenly(jobs: Sequence[Job], parts: int) -> list[Job]:
    """The jobs in parts of about equal cost.

    The jobs are sorted by method and go to part 0, 1, ..., n, then n, ..., 1, 0, and so on, so that every part gets
    some of each method.
    """
    split: list[list[Cell]] = [[] for _ in range(parts)]
    ordered = sorted(jobs, key=lambda job: (job[0].config.method, job[0].config.known or "", job[0].config.seed))
    for index, job in enumerate(ordered):
        turn, position = divmod(index, parts)
        split[position if turn % 2 == 0 else parts - 1 - position].extend(job)
    return [tuple(part) for part in split if part]


def completed_fraction(study: Study) -> float:
    """The completed fraction of a study, from the files of its processes; training and evaluation count half each."""

    def fraction(cell: Cell) -> float:
        if study.cell_path(cell).exists():
            return 1.0
        return len(read_log(study.run_path(cell) / LOG).rows) / cell.config.recipe.epochs / 2

    return sum(map(fraction, study.grid.cells)) / len(study.grid.cells)
