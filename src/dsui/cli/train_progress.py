"""Progress of `dsui train`: on a terminal, in a log, and for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsui.cli.progress import STOPPING, format_duration, print_note
from dsui.cli.terminal import stderr_console
from dsui.errors import DsuiError
from dsui.training.loop import IMAGES_PER_SECOND, WARNING, Reporter

BAR_WIDTH = 12
"""A terminal of 80 columns has no more room beside the text."""


class TrainingProgress:
    """A reporter that draws a live bar on a terminal, and prints one line per epoch elsewhere.

    The bar shows the figures of the last whole epoch; those of the first one as it goes.
    """

    def __init__(self, silent: bool, epochs: int) -> None:
        self.console = stderr_console(silent)
        self.live = self.console.is_terminal and not silent
        columns = (TextColumn("{task.description}", markup=False), BarColumn(BAR_WIDTH), TimeRemainingColumn())
        self.display = Progress(*columns, console=self.console, transient=True, disable=not self.live)
        self.task = self.display.add_task("starting", total=None)
        self.epochs = epochs
        self.last_epoch: dict[str, float] = {}

    def __enter__(self) -> TrainingProgress:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        epoch = done * self.epochs // total
        figures = {**figures, **self.last_epoch}
        shown = {name: figures[name] for name in ("loss", "accuracy", IMAGES_PER_SECOND) if name in figures}
        description = f"epoch {min(epoch + 1, self.epochs)}/{self.epochs}: {_format_figures(shown, 3)}"
        self.display.update(self.task, completed=done, total=total, description=description)

    def epoch(self, row: dict[str, object]) -> None:
        figures = {name: value for name, value in row.items() if isinstance(value, float) and name != "seconds"}
        self.last_epoch = figures
        if not self.live:
            epoch, seconds = row["epoch"], row["seconds"]
            assert isinstance(epoch, int)
            assert isinstance(seconds, float)
            done = epoch + 1
            left = f", {format_duration(seconds * (self.epochs - done))} left" if done < self.epochs else ""
            text = _format_figures(figures, 4).replace("accuracy", "training accuracy")
            self.console.print(f"epoch {done}/{self.epochs}: {text}, {seconds:.3g} s{left}", soft_wrap=True)
        if WARNING in row:
            print_note(self.console, str(row[WARNING]))

    def note(self, sentence: str) -> None:
        print_note(self.console, sentence)

    def stopping(self) -> None:
        print_note(self.console, STOPPING)


class TensorBoardReporter:
    """Passes everything on to another reporter, and writes each epoch's figures for TensorBoard as well."""

    def __init__(self, reporter: Reporter, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise DsuiError("--tensorboard needs the package tensorboard; install it or leave the flag out.") from error
        self.reporter, self.writer = reporter, SummaryWriter(out / "tensorboard")

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        self.reporter.steps(done, total, figures)

    def note(self, sentence: str) -> None:
        self.reporter.note(sentence)

    def epoch(self, row: dict[str, object]) -> None:
        self.reporter.epoch(row)
        for name, value in row.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, row["step"])
        self.writer.flush()

    def stopping(self) -> None:
        self.reporter.stopping()


def _format_figures(figures: dict[str, float], digits: int) -> str:
    rate = figures.get(IMAGES_PER_SECOND)
    shown = [f"{name} {value:.{digits}g}" for name, value in figures.items() if name != IMAGES_PER_SECOND]
    return ", ".join([*shown, *([] if rate is None else [f"{rate:,.0f} images/s"])])
