"""Progress of `dsui train`: on a terminal, in a log, and for TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from dsui.cli.progress import STOPPING, format_duration, print_note
from dsui.cli.terminal import stderr_console
from dsui.errors import DsuiError
from dsui.training.reporter import (
    ACCURACY,
    HELD_OUT_ACCURACY,
    HELD_OUT_LOSS,
    IMAGES_PER_SECOND,
    WARNING,
    Reporter,
)

BAR_WIDTH = 8
TIME_WIDTH = len(" 12:34:56 left")
NARROW = 64
"""A terminal of fewer columns has no room for a bar beside the text."""
SPEED_SECONDS = 600
"""The time left is judged by the speed in this time: a step or an epoch may take minutes."""
HELD_OUT = (HELD_OUT_ACCURACY, HELD_OUT_LOSS)
NAMES = {ACCURACY: "training accuracy", HELD_OUT_ACCURACY: "held-out accuracy", HELD_OUT_LOSS: "held-out loss"}
"""What a line of a log calls them."""
FORGOTTEN_FIRST = (IMAGES_PER_SECOND, "loss", ACCURACY, HELD_OUT_LOSS, HELD_OUT_ACCURACY)
"""What a bar leaves out, one after another, until the rest fits."""


class TrainingProgress:
    """A reporter that draws a live bar on a terminal, and prints one line per epoch elsewhere.

    The bar shows the figures of the last whole epoch; those of the first one as it goes.
    """

    def __init__(self, silent: bool, epochs: int) -> None:
        self.console = stderr_console(silent)
        self.live = self.console.is_terminal and not silent
        bar = [] if self.console.width < NARROW else [BarColumn(BAR_WIDTH)]
        self.display = Progress(
            TextColumn("{task.description}", markup=False),
            *bar,
            _TimeLeft(compact=True),
            console=self.console,
            transient=True,
            disable=not self.live,
            speed_estimate_period=SPEED_SECONDS,
        )
        self.task = self.display.add_task("starting", total=None)
        self.epochs = epochs
        self.last_epoch: dict[str, float] = {}

    def __enter__(self) -> TrainingProgress:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def preparing(self, what: str, done: int, total: int | None) -> None:
        self.display.update(self.task, completed=done, total=total, description=what)

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        epoch = min(done * self.epochs // total + 1, self.epochs)
        room = self.console.width - TIME_WIDTH - (BAR_WIDTH + 1 if self.console.width >= NARROW else 0)
        description = bar_text(f"epoch {epoch}/{self.epochs}", {**figures, **self.last_epoch}, room)
        self.display.update(self.task, completed=done, total=total, description=description)

    def epoch(self, row: dict[str, object]) -> None:
        figures = {name: value for name, value in row.items() if isinstance(value, float) and name != "seconds"}
        kept = {name: value for name, value in self.last_epoch.items() if name in HELD_OUT}
        self.last_epoch = kept | figures
        epoch, step, seconds = row["epoch"], row["step"], row["seconds"]
        assert isinstance(epoch, int)
        assert isinstance(step, int)
        assert isinstance(seconds, float)
        done = epoch + 1
        if self.live:
            self.steps(step, step // done * self.epochs, {})
        else:
            left = f", {format_duration(seconds * (self.epochs - done))} left" if done < self.epochs else ""
            text = ", ".join(f"{NAMES.get(name, name)} {value:.4g}" for name, value in figures.items())
            self.console.print(f"epoch {done}/{self.epochs}: {text}, {seconds:.3g} s{left}", soft_wrap=True)
        if WARNING in row:
            print_note(self.console, str(row[WARNING]))

    def note(self, sentence: str) -> None:
        print_note(self.console, sentence)

    def stopping(self) -> None:
        print_note(self.console, STOPPING)
        self.display.update(self.task, description="finishing this step")


class TensorBoardReporter:
    """Passes everything on to another reporter, and writes each epoch's figures for TensorBoard as well."""

    def __init__(self, reporter: Reporter, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise DsuiError("--tensorboard needs the package tensorboard; install it or leave the flag out.") from error
        self.reporter, self.writer = reporter, SummaryWriter(out / "tensorboard")

    def preparing(self, what: str, done: int, total: int | None) -> None:
        self.reporter.preparing(what, done, total)

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


class _TimeLeft(TimeRemainingColumn):
    """As in "1:23 left"; nothing until it can be judged."""

    def render(self, task: Task) -> Text:
        if task.time_remaining is None or task.finished:
            return Text("")
        return Text.assemble(super().render(task), " left")


def bar_text(epoch: str, figures: Mapping[str, float], room: int) -> str:
    """The epoch, and as many of the figures as fit into `room` columns."""
    kept = dict(figures)
    for name in (None, *FORGOTTEN_FIRST):
        kept.pop(name or "", None)
        text = ": ".join(filter(None, (epoch, ", ".join(_figure_texts(kept)))))
        if len(text) <= room:
            break
    return text


def _figure_texts(figures: Mapping[str, float]) -> Iterator[str]:
    """One text for each figure; the two of held-out images share one."""
    if "loss" in figures:
        yield _loss_text(figures["loss"])
    if ACCURACY in figures:
        yield f"accuracy {figures[ACCURACY]:.3f}"
    if HELD_OUT_ACCURACY in figures:
        loss = f" {_loss_text(figures[HELD_OUT_LOSS])}" if HELD_OUT_LOSS in figures else ""
        yield f"held-out {figures[HELD_OUT_ACCURACY]:.3f}{loss}"
    if IMAGES_PER_SECOND in figures:
        yield f"{figures[IMAGES_PER_SECOND]:,.0f} images/s"


def _loss_text(loss: float) -> str:
    return f"loss {loss:#.3g}".rstrip(".")
