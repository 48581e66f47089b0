"""Progress bars and notes on stderr."""

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

STOPPING = "finishing this step and saving the run; a second Ctrl-C stops at once."


def format_duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def print_note(console: Console, sentence: str) -> None:
    console.print(f"Note: {sentence}", soft_wrap=True)


class ProgressBars:
    """One bar for each piece of work, added when it first reports; shown only on a terminal."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        """`columns` stand behind the bar; by default the count, the time it took and the time it still takes."""
        shown = columns or (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.console, self.live = console, console.is_terminal and not console.quiet
        self.display = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *shown,
            console=console,
            transient=True,
            disable=not self.live,
        )
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBars:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def update(self, what: str, done: int, total: int | None) -> None:
        """A `dsui.progress.Progress`."""
        if what not in self.tasks:
            self.tasks[what] = self.display.add_task(what, total=total)
        self.display.update(self.tasks[what], completed=done, total=total)

    def note(self, sentence: str) -> None:
        """Print a sentence above the bars."""
        print_note(self.console, sentence)
