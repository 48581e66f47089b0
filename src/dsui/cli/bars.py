"""Progress of several pieces of work."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def notes(quiet: bool) -> Console:
    """Where progress and notes go: stderr, so that stdout holds results alone."""
    return Console(stderr=True, quiet=quiet, highlight=False)


def duration(seconds: float) -> str:
    """In a unit a person would choose."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


class Bars:
    """One bar for each piece of work, as it is first heard of; notes stand above. Only on a terminal."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        """`columns` stand behind the bar; by default how far, for how long, and how long still."""
        shown = columns or (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.console, self.live = console, console.is_terminal and not console.quiet
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *shown,
            console=console,
            transient=True,
            disable=not self.live,
        )
        self.bars: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, what: str, done: int, total: int | None) -> None:
        if what not in self.bars:
            self.bars[what] = self.bar.add_task(what, total=total)
        self.bar.update(self.bars[what], completed=done, total=total)

    def say(self, sentence: str) -> None:
        self.console.print(f"Note: {sentence}", soft_wrap=True, markup=False)
