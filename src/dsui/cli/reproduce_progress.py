"""Progress of `dsui reproduce` on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsui.cli.errors import STOPPED
from dsui.cli.progress import STOPPING, print_note
from dsui.cli.terminal import stderr_console
from dsui.excerpt import shorten
from dsui.experiments.cell_run import RunContext
from dsui.experiments.engines import log_file
from dsui.experiments.grid import Cell, Job
from dsui.experiments.speeds import Machine
from dsui.experiments.study import Study
from dsui.training.reporter import WARNING

LOGS = "logs"
"""Folder in a study for what the processes of its jobs print."""


class StudyProgress:
    """A reporter that prints one line for each finished cell, and on a terminal draws a bar for the running one.

    `cells` is the number of cells that may run. The process that leads a study keeps the speeds of its runs
    (`notes_speed`), which it knows with their start.
    """

    def __init__(self, study: Study, cells: int, machine: Machine, *, quiet: bool, notes_speed: bool = True) -> None:
        self.study, self.machine, self.notes_speed = study, machine, notes_speed
        self.total, self.finished, self.running = cells, 0, ""
        self.console = stderr_console(quiet)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        live = self.console.is_terminal and not quiet
        self.display = Progress(*columns, console=self.console, transient=True, disable=not live)
        self.task = self.display.add_task("cells", total=self.total)

    def __enter__(self) -> StudyProgress:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def run(self, jobs: Iterable[Job], context: RunContext) -> None:
        """Run the jobs in this process."""
        for job in jobs:
            began, self.running = time.monotonic(), job[0].name
            self.update("starting", 0, None)
            self.study.run(job, context, self.cell_finished)
            self._note_speed(job, time.monotonic() - began)

    def preparing(self, what: str, done: int, total: int | None) -> None:
        self.update(what, done, total)

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        self.update(f"loss {figures['loss']:.4g}" if figures.get("loss") else "training", done, total)

    def epoch(self, row: dict[str, object]) -> None:
        """The bar shows every step; a warning names its cell."""
        if WARNING in row:
            self.note(f"{self.running}: {row[WARNING]}")

    def stopping(self) -> None:
        print_note(self.console, STOPPING)

    def update(self, what: str, done: int, total: int | None) -> None:
        """A `dsui.progress.Progress` for the running cell."""
        description = f"{self.finished + 1}/{self.total} {self.running}: {what}"
        self.display.update(self.task, completed=done, total=total, description=description)

    def note(self, sentence: str) -> None:
        print_note(self.console, sentence)

    def cell_finished(self, cell: Cell, seconds: float) -> None:
        self.finished += 1
        error = self.study.record(cell).get("error")
        result = f"failed: {error}" if error else f"{seconds:.1f} s"
        self.console.print(f"{self.finished}/{self.total} {cell.name}: {result}", soft_wrap=True, markup=False)

    def job_finished(self, job: Job, seconds: float, status: int | str) -> None:
        """The process of a job ended; a `status` that is a sentence says why it has no exit status."""
        if status == STOPPED:
            self.console.print(f"{job[0].name}: stopped at a checkpoint", soft_wrap=True, markup=False)
            return
        log = log_file(self.study.out / LOGS, job)
        last = f" ({_last_line(log)})" if isinstance(status, int) and status > 0 and _last_line(log) else ""
        died = f"its process ended with status {status}{last}; its log is {log}."
        for cell in job:
            if not self.study.record(cell):
                self.study.fail(cell, status if isinstance(status, str) else died)
            self.cell_finished(cell, seconds)
        self.display.update(self.task, completed=self.finished)
        self._note_speed(job, seconds)

    def _note_speed(self, job: Job, seconds: float) -> None:
        if self.notes_speed:
            self.study.note_speed(job, self.machine, seconds)


def _last_line(log: Path) -> str:
    """What a process said before it ended; Python ends with the error. A killed one says nothing."""
    try:
        return shorten((log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""])[-1], 200)
    except OSError:
        return ""
