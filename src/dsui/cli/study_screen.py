"""A study's progress on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsui.cli.bars import notes
from dsui.experiments.cell_run import Conditions
from dsui.experiments.grid import Cell
from dsui.experiments.study import Job, Study

LOGS = "logs"
"""In the folder of a study: what the processes of its jobs print."""


class StudyScreen:
    """One line for each cell that ended; on a terminal also a bar for the one that runs.

    Only the process that leads a study collects its results; those that run single cells would be in each other's way.
    """

    def __init__(self, study: Study, jobs: Sequence[Job], collects: bool, quiet: bool) -> None:
        self.study, self.collects = study, collects
        self.total, self.position, self.running = sum(map(len, jobs)), 0, ""
        self.console = notes(quiet)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        live = self.console.is_terminal and not quiet
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not live)
        self.task = self.bar.add_task("cells", total=self.total)

    def __enter__(self) -> StudyScreen:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def run(self, jobs: Sequence[Job], conditions: Conditions) -> None:
        """Carry out the jobs in this process."""
        for job in jobs:
            self.running = job[0].name
            self._update("starting", None, None)
            self.study.run(job, conditions, self.told)

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        self._update(f"loss {figures['loss']:.4g}" if figures.get("loss") else "training", done, total)

    def epoch(self, row: dict[str, object]) -> None:
        """The bar has told."""

    def images(self, name: str, done: int, total: int) -> None:
        self._update(name, done, total)

    def say(self, sentence: str) -> None:
        self.console.print(f"Note: {sentence}", soft_wrap=True, markup=False)

    def told(self, cell: Cell, seconds: float) -> None:
        self.position += 1
        error = self.study.record(cell).get("error")
        outcome = f"failed: {error}" if error else f"{seconds:.1f} s"
        self.console.print(f"{self.position}/{self.total} {cell.name}: {outcome}", soft_wrap=True, markup=False)
        if self.collects:
            self.study.collect()

    def ended(self, job: Job, seconds: float, status: int | str) -> None:
        """A process that carried out a job, or died of it; a `status` in words says why there is none."""
        died = f"its process ended with status {status}; its log is in {self.study.out / LOGS}."
        for cell in job:
            if not self.study.record(cell):
                self.study.fail(cell, status if isinstance(status, str) else died)
            self.told(cell, seconds)
        self.bar.update(self.task, completed=self.position)

    def _update(self, words: str, done: int | None, total: int | None) -> None:
        description = f"{self.position + 1}/{self.total} {self.running}: {words}"
        self.bar.update(self.task, completed=done or 0, total=total, description=description)
