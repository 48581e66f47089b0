"""What training prints where there is no terminal."""

from __future__ import annotations

import signal

import pytest

from dsui.cli.progress import STOPPING
from dsui.cli.train_progress import TrainingProgress
from dsui.training.interruption import Interruption


def test_a_line_counts_from_one_and_says_how_long_it_still_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=False, epochs=100) as progress:
        for epoch in (0, 98, 99):
            progress.epoch({"epoch": epoch, "step": 7, "loss": 1.23456, "accuracy": 0.4, "seconds": 35.25})
    words = "loss 1.235, training accuracy 0.4, 35.2 s"
    assert capsys.readouterr().err.splitlines() == [
        f"epoch 1/100: {words}, about 58 min left",
        f"epoch 99/100: {words}, about 35 s left",
        f"epoch 100/100: {words}",
    ]


def test_the_bar_shows_the_last_whole_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = TrainingProgress(silent=True, epochs=3)
    shown: list[str] = []
    monkeypatch.setattr(progress.display, "update", lambda *_, description, **__: shown.append(description))
    progress.steps(0, 3, {"loss": 2.5, "accuracy": 0.1, "images_per_second": 1000.0})
    progress.epoch({"epoch": 0, "step": 1, "loss": 1.5, "accuracy": 0.75, "seconds": 1.0})
    progress.steps(1, 3, {"loss": 0.0, "accuracy": 0.0, "images_per_second": 1000.0})  # the next one begins
    assert shown == [
        "epoch 1/3: loss 2.5, accuracy 0.1, 1,000 images/s",
        "epoch 2/3: loss 1.5, accuracy 0.75, 1,000 images/s",
    ]


def test_a_wish_to_stop_is_answered_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=False, epochs=3) as progress, Interruption(progress.stopping) as interruption:
        signal.raise_signal(signal.SIGTERM)
        assert interruption.requested
        assert capsys.readouterr().err == f"Note: {STOPPING}\n"


def test_a_warning_stands_below_the_line_of_its_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=False, epochs=2) as progress:
        progress.epoch({"epoch": 0, "loss": 1.0, "seconds": 1.0, "warning": "In epoch 1 something goes wrong."})
    assert capsys.readouterr().err.splitlines()[1] == "Note: In epoch 1 something goes wrong."


def test_nothing_is_said_when_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(silent=True, epochs=2) as progress:
        progress.epoch({"epoch": 0, "loss": 1.0, "seconds": 1.0, "warning": "In epoch 1 something goes wrong."})
    assert capsys.readouterr().err == ""
