"""A run's progress on the screen."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsui.cli.bars import duration, notes
from dsui.errors import DsuiError
from dsui.training.loop import IMAGES_PER_SECOND, Reporter

BAR = 12
"""Its width: beside the words a terminal of 80 columns has no more."""


class TrainingScreen:
    """A live bar on a terminal, one plain line per epoch elsewhere."""

    def __init__(self, silent: bool, epochs: int) -> None:
        self.console = notes(silent)
        self.live = self.console.is_terminal and not silent
        columns = (TextColumn("{task.description}"), BarColumn(BAR), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.live)
        self.task = self.bar.add_task("starting", total=None)
        self.epochs = epochs

    def __enter__(self) -> TrainingScreen:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        epoch = done * self.epochs // total
        shown = {name: figures[name] for name in ("loss", "accuracy", IMAGES_PER_SECOND) if name in figures}
        words = f"epoch {min(epoch + 1, self.epochs)}/{self.epochs}: {_words(shown, 3)}"
        self.bar.update(self.task, completed=done, total=total, description=words)

    def epoch(self, row: dict[str, object]) -> None:
        figures = {name: value for name, value in row.items() if isinstance(value, float) and name != "seconds"}
        if not self.live:
            epoch, seconds = row["epoch"], row["seconds"]
            assert isinstance(epoch, int)
            assert isinstance(seconds, float)
            done = epoch + 1
            left = f", {duration(seconds * (self.epochs - done))} left" if done < self.epochs else ""
            words = _words(figures, 4).replace("accuracy", "training accuracy")
            self.console.print(f"epoch {done}/{self.epochs}: {words}, {seconds:.3g} s{left}", soft_wrap=True)


class WithTensorBoard:
    """Passes a run's progress on, and each epoch's figures to TensorBoard as well."""

    def __init__(self, screen: Reporter, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise DsuiError("--tensorboard needs the package tensorboard; install it or leave the flag out.") from error
        self.screen, self.writer = screen, SummaryWriter(out / "tensorboard")

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        self.screen.steps(done, total, figures)

    def epoch(self, row: dict[str, object]) -> None:
        self.screen.epoch(row)
        for name, value in row.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, row["step"])
        self.writer.flush()


def _words(figures: dict[str, float], digits: int) -> str:
    rate = figures.get(IMAGES_PER_SECOND)
    shown = [f"{name} {value:.{digits}g}" for name, value in figures.items() if name != IMAGES_PER_SECOND]
    return ", ".join([*shown, *([] if rate is None else [f"{rate:,.0f} images/s"])])
