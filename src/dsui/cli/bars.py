"""Progress over several sets of images."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Bars:
    """One bar for each piece of work, as it is first heard of; warnings stand above. Only on a terminal."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.console = console
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.bars: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, name: str, done: int, total: int) -> None:
        if name not in self.bars:
            self.bars[name] = self.bar.add_task(name, total=total)
        self.bar.update(self.bars[name], completed=done)

    def say(self, sentence: str) -> None:
        self.console.print(f"Note: {sentence}", soft_wrap=True, markup=False)
