"""What training shows on a terminal and prints elsewhere."""

from __future__ import annotations

import io
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from dsui.cli.progress import STOPPING
from dsui.cli.train_progress import TensorBoardReporter, TrainingProgress
from dsui.training.interruption import Interruption
from dsui.training.reporter import SilentReporter


def test_a_line_counts_from_one_and_says_how_long_it_still_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=False, epochs=100) as progress:
        for epoch in (0, 98, 99):
            row = {"epoch": epoch, "step": 7, "loss": 1.23456, "accuracy": 0.4, "held_out_accuracy": 0.375}
            progress.epoch({**row, "seconds": 35.25})
    words = "loss 1.235, training accuracy 0.4, held-out accuracy 0.375, 35.2 s"
    assert capsys.readouterr().err.splitlines() == [
        f"epoch 1/100: {words}, about 58 min left",
        f"epoch 99/100: {words}, about 35 s left",
        f"epoch 100/100: {words}",
    ]


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> tuple[TrainingProgress, list[str]]:
    """The progress on a terminal of 120 columns, and what its bar says."""
    monkeypatch.setenv("COLUMNS", "120")
    progress = TrainingProgress(silent=False, epochs=3)
    progress.live = True
    shown: list[str] = []
    monkeypatch.setattr(progress.display, "update", lambda *_, description, **__: shown.append(description))
    return progress, shown


RUNNING = {"loss": 2.5, "accuracy": 0.1, "images_per_second": 1000.0}
FIRST: dict[str, object] = {
    "epoch": 0, "step": 2, "loss": 1.5, "accuracy": 0.75, "held_out_accuracy": 0.7, "seconds": 1.0
}  # fmt: skip


def test_the_bar_shows_the_last_whole_epoch(bar: tuple[TrainingProgress, list[str]]) -> None:
    progress, shown = bar
    progress.steps(1, 6, RUNNING)
    progress.epoch(FIRST)
    progress.steps(3, 6, {"loss": 0.0, "accuracy": 0.0, "images_per_second": 1000.0})
    assert shown == [
        "epoch 1/3: loss 2.50, accuracy 0.100, 1,000 images/s",
        "epoch 2/3: loss 1.50, accuracy 0.750, held-out 0.700",
        "epoch 2/3: loss 1.50, accuracy 0.750, held-out 0.700, 1,000 images/s",
    ]


def test_with_one_step_an_epoch_the_bar_never_shows_an_epoch_without_steps(
    bar: tuple[TrainingProgress, list[str]],
) -> None:
    progress, shown = bar
    for epoch in range(3):
        progress.epoch({**FIRST, "epoch": epoch, "step": epoch + 1, "loss": 1.5 - epoch / 10})
        progress.steps(epoch + 1, 3, {"images_per_second": 1000.0})  # as the loop calls it right behind
    assert [text.partition(",")[0] for text in shown] == [
        *("epoch 2/3: loss 1.50", "epoch 2/3: loss 1.50", "epoch 3/3: loss 1.40", "epoch 3/3: loss 1.40"),
        *("epoch 3/3: loss 1.30", "epoch 3/3: loss 1.30"),
    ]


def test_a_held_out_accuracy_stays_until_the_next_one(bar: tuple[TrainingProgress, list[str]]) -> None:
    progress, shown = bar
    progress.epoch({**FIRST, "held_out_loss": 0.9})
    progress.epoch({"epoch": 1, "step": 4, "loss": 1.0, "accuracy": 0.8, "seconds": 1.0})
    assert shown[-1] == "epoch 3/3: loss 1.00, accuracy 0.800, held-out 0.700 loss 0.900"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (100, "epoch 12/100: loss 0.412, accuracy 0.913, held-out 0.880 loss 0.340"),
        (80, "epoch 12/100: accuracy 0.913, held-out 0.880 loss 0.340"),
        (60, "epoch 12/100: held-out 0.880 loss 0.340"),
        (50, "epoch 12/100: held-out 0.880"),
        (40, "epoch 12/100"),
        (20, "epoch 12/100"),
    ],
)
def test_a_narrow_bar_keeps_what_tells_most(monkeypatch: pytest.MonkeyPatch, columns: int, text: str) -> None:
    figures = {"loss": 0.4123, "accuracy": 0.913, "held_out_accuracy": 0.88, "held_out_loss": 0.34}
    figures["images_per_second"] = 12345.0
    stream = io.StringIO()
    monkeypatch.setattr(
        "dsui.cli.train_progress.stderr_console",
        lambda _: Console(file=stream, force_terminal=True, width=columns, color_system=None),
    )
    with TrainingProgress(silent=False, epochs=100) as progress:
        progress.steps(1195, 10000, {})
        progress.steps(1199, 10000, figures)
        progress.display.refresh()
    lines = [line.rstrip() for line in stream.getvalue().replace("\r", "\n").splitlines()]
    drawn = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in lines]
    assert max(map(len, drawn)) <= columns
    last = [line for line in drawn if line.startswith("epoch 12/100")][-1]
    assert last.startswith(text)
    assert any(part in last for part in "━╸") == (columns >= 64)


def test_the_time_left_is_named_once_it_can_be_judged() -> None:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "dsui.cli.train_progress.stderr_console",
            lambda _: Console(file=stream, force_terminal=True, width=100, color_system=None),
        )
        clock = iter(range(0, 10_000, 10))
        with TrainingProgress(silent=False, epochs=3) as progress:
            progress.display.get_time = lambda: float(next(clock))
            for done in range(1, 8):
                progress.steps(done, 9, RUNNING)
            progress.display.refresh()
    assert " left" in stream.getvalue()
    assert "-:--" not in stream.getvalue()


def test_a_wish_to_stop_is_answered_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=False, epochs=3) as progress, Interruption(progress.stopping) as interruption:
        signal.raise_signal(signal.SIGTERM)
        assert interruption.requested
        assert capsys.readouterr().err == f"Note: {STOPPING}\n"


WARNED: dict[str, object] = {
    "epoch": 0, "step": 3, "loss": 1.0, "seconds": 1.0, "warning": "In epoch 1 something goes wrong."
}  # fmt: skip


def test_a_warning_stands_below_the_line_of_its_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=False, epochs=2) as progress:
        progress.epoch(
            {"epoch": 0, "step": 3, "loss": 1.0, "seconds": 1.0, "warning": "In epoch 1 something goes wrong."}
        )
    assert capsys.readouterr().err.splitlines()[1] == "Note: In epoch 1 something goes wrong."


def test_nothing_is_said_when_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=True, epochs=2) as progress:
        progress.epoch(
            {"epoch": 0, "step": 3, "loss": 1.0, "seconds": 1.0, "warning": "In epoch 1 something goes wrong."}
        )
    assert capsys.readouterr().err == ""


def test_tensorboard_gets_the_figures_of_held_out_images_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, float] = {}

    class Writer:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def add_scalar(self, name: str, value: float, _step: object) -> None:
            written[name] = value

        def flush(self) -> None: ...

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    TensorBoardReporter(SilentReporter(), tmp_path).epoch({**FIRST, "held_out_loss": 0.9, "best_epoch": 0})
    assert (written["held_out_accuracy"], written["held_out_loss"]) == (0.7, 0.9)
