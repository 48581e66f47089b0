"""The runs of `dsui demo`: a study of the grid demo.yaml, carried out by a few processes beside each other."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from dsui.errors import DsuiError, RunError
from dsui.experiments import engines
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import Job, Study
from dsui.runs.files import write_atomic
from dsui.runs.folder import LOG
from dsui.runs.log import read_log

GRID, LOGS = "demo.yaml", "logs"
MOST_PROCESSES = 4


def begin(out: Path, seeds: int) -> Study:
    """The study in `out`, new or to go on with; its grid lies there as a file, for other processes and for the user."""
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


def carry_out(study: Study, jobs: Sequence[Job], tell: Callable[[float], None]) -> None:
    """To the end of all jobs, or to a KeyboardInterrupt; `tell` hears which share of the study is done."""
    hands = min(MOST_PROCESSES, os.cpu_count() or 1)
    command = [sys.executable, "-m", "dsui", "reproduce", str(study.out / GRID), "--out", str(study.out)]
    logs, share = study.out / LOGS, share_done(study)
    if not engines.several_processes(
        dealt(jobs, hands), [*command, "--device", "cpu"], hands, logs, lambda *_: None, lambda: tell(share())
    ):
        raise KeyboardInterrupt
    if undone := [cell for cell in study.grid.cells if not study.done(cell)]:
        why = study.record(undone[0]).get("error", "its process died.")
        raise DsuiError(
            f"{len(undone)} of {len(study.grid.cells)} runs failed; {undone[0].name}: {why} More is in {logs}; "
            "the same command tries again."
        )


def dealt(jobs: Sequence[Job], hands: int) -> list[Job]:
    """The jobs in `hands` parts of about equal cost: sorted by method, then to and fro, so that each gets of each."""
    parts: list[list[Cell]] = [[] for _ in range(hands)]
    ordered = sorted(jobs, key=lambda job: (job[0].config.method, job[0].config.known or "", job[0].config.seed))
    for place, job in enumerate(ordered):
        turn, position = divmod(place, hands)
        parts[position if turn % 2 == 0 else hands - 1 - position].extend(job)
    return [tuple(part) for part in parts if part]


def share_done(study: Study) -> Callable[[], float]:
    """Of the study, from what its processes have written; a run's training counts as much as its evaluation."""
    places = [
        (study.cell_path(cell), study.run_path(cell) / LOG, cell.config.recipe.epochs) for cell in study.grid.cells
    ]

    def done(cell: Path, log: Path, epochs: int) -> float:
        if cell.exists():
            return 1.0
        return len(read_log(log).rows) / epochs / 2

    return lambda: sum(done(*place) for place in places) / len(places)
