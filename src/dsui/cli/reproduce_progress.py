"""Progress of `dsui reproduce` on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsui.cli.progress import STOPPING, print_note
from dsui.cli.terminal import stderr_console
from dsui.experiments.cell_run import RunContext
from dsui.experiments.grid import Cell
from dsui.experiments.study import Job, Study
from dsui.training.loop import WARNING

LOGS = "logs"
"""Folder in a study for what the processes of its jobs print."""


class StudyProgress:
    """A reporter that prints one line for each finished cell, and on a terminal draws a bar for the running one.

    Only the process that leads a study collects its results; processes that run single cells would overwrite each
    other's files.
    """

    def __init__(self, study: Study, jobs: Sequence[Job], collects: bool, quiet: bool) -> None:
        self.study, self.collects = study, collects
        self.total, self.finished, self.running = sum(map(len, jobs)), 0, ""
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

    def run(self, jobs: Sequence[Job], context: RunContext) -> None:
        """Run the jobs in this process."""
        for job in jobs:
            self.running = job[0].name
            self.update("starting", 0, None)
            self.study.run(job, context, self.cell_finished)

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
        if self.collects:
            self.study.collect()

    def job_finished(self, job: Job, seconds: float, status: int | str) -> None:
        """The process of a job ended; a `status` that is a sentence says why it has no exit status."""
        died = f"its process ended with status {status}; its log is in {self.study.out / LOGS}."
        for cell in job:
            if not self.study.record(cell):
                self.study.fail(cell, status if isinstance(status, str) else died)
            self.cell_finished(cell, seconds)
        self.display.update(self.task, completed=self.finished)
