"""Early stopping: it stops where it should, keeps the best weights, and a killed run stops there too."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.runs.calibration import CALIBRATION, Calibration
from dsui.runs.config import RunConfig
from dsui.runs.images import held_out_images, training_images
from dsui.runs.weights import load_weights, read_metadata
from dsui.training.distributed import World
from dsui.training.early_stopping import EarlyStopping, first_epoch
from dsui.training.loop import InterruptedRun, fit
from dsui.training.reporter import SilentReporter
from dsui.training.trainer import Trainer
from tests.support.digit_runs import CPU, digit_config

RISING: dict[str, Any] = {
    "epochs": 30,
    "batch": 16,
    "patience": 3,
    "held_out": 0.3,
    "peak_rate": 0.03,
    "rate_warm_up": 1,
}
"""On few digits this rate overfits, so that the held-out loss rises again. An epoch has 10 steps."""


class Listening(SilentReporter):
    """Keeps the notes; presses Ctrl-C after some epochs."""

    def __init__(self, *stop_after: int) -> None:
        self.stop_after, self.notes = stop_after, list[str]()

    def epoch(self, row: dict[str, object]) -> None:
        if row["epoch"] in self.stop_after:
            os.kill(os.getpid(), signal.SIGINT)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def trained(out: Path, config: RunConfig, reporter: Listening | None = None, resume: bool = False) -> Trainer:
    whole = load("digits-256", "train")
    held_out = held_out_images(config, whole) if config.held_out else None
    chosen = training_images(config, whole)
    return fit(config, chosen, out, CPU, World(), reporter or Listening(), resume=resume, held_out=held_out)


def config(method: str = "dsui", **settings: Any) -> RunConfig:
    return digit_config(method, **{**RISING, **settings})


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_the_best_of_equal_losses_is_the_first_and_patience_counts_from_it() -> None:
    stopping = EarlyStopping(2)
    weight = torch.zeros(1)
    ended = []
    for epoch, loss in enumerate([float("nan"), 3.0, 2.0, 2.0, 2.5, 1.0]):
        weight.fill_(epoch)
        stopping.see(epoch, loss, {"weight": weight})
        ended.append(stopping.is_over(epoch))
    assert ended == [False, False, False, False, True, False]
    assert (stopping.epoch, stopping.loss, stopping.weights["weight"].item()) == (5, 1.0, 5.0)


def test_patience_counts_when_the_rate_has_warmed_up_and_batch_norms_have_forgotten_the_start() -> None:
    recipe = config(rate_warm_up=7).recipe
    assert [first_epoch(recipe, steps) for steps in (2, 5, 10, 1000)] == [24, 9, 6, 6]
    stopping, ended = EarlyStopping(2, first=4), []
    for epoch, loss in enumerate([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]):
        stopping.see(epoch, loss, {})
        ended.append(stopping.is_over(epoch))
    assert ended == [False, False, False, False, False, False, True]
    assert str(stopping.sentence(9)).startswith("Stopped after epoch 7 of 9: the weights of epoch 1 are kept")
    assert str(stopping.sentence(7)).startswith("The weights of epoch 1 are kept")


@pytest.mark.parametrize("average", ["none", "ema"])
def test_training_stops_with_the_weights_whose_held_out_loss_was_lowest(tmp_path: Path, average: str) -> None:
    reporter, out = Listening(), tmp_path / "run"
    trained(out, config(average=average, ema_decay=0.9), reporter)
    rows = log(out)
    losses = [row["held_out_loss"] for row in rows]
    best = losses.index(min(losses))
    assert len(rows) < RISING["epochs"], "it stopped early"
    assert len(rows) == best + 1 + RISING["patience"]
    assert rows[-1]["best_epoch"] == best
    assert reporter.notes == [
        f"Stopped after epoch {len(rows)} of 30: the weights of epoch {best + 1} are kept, whose held-out loss is "
        f"lowest ({losses[best]:.4g})."
    ]
    found = Calibration.from_text(read_metadata(out / "model.safetensors")[CALIBRATION])
    right = 1 - found.errors.double().mean().item()
    assert right == pytest.approx(rows[best]["held_out_accuracy"], abs=1e-12), "the kept weights are those measured"


@pytest.fixture(scope="module", params=["none", "swa"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    """A run with or without averaged weights that stopped early."""
    run = config(average=request.param, swa_start=0.1, density_warm_up=1, initialize=True)
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    trained(out, run)
    return run, out


@pytest.mark.parametrize("when", ["before", "at the end"])
def test_a_killed_run_stops_where_it_would_have_stopped_with_the_same_bits(
    tmp_path: Path, undisturbed: tuple[RunConfig, Path], when: str
) -> None:
    run, straight = undisturbed
    last = len(log(straight)) - 1
    broken = tmp_path / "broken"
    with pytest.raises(InterruptedRun):
        trained(broken, run, Listening(last - 2 if when == "before" else last))
    notes = Listening()
    trained(broken, run, notes, resume=True)
    assert any("are kept" in note for note in notes.notes)
    ours, theirs = (load_weights(out / "model.safetensors")[0] for out in (broken, straight))
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    logs = [[{**row, "seconds": 0} for row in log(out)] for out in (broken, straight)]
    assert logs[0] == logs[1]


def test_weights_of_a_warm_up_are_never_the_best(tmp_path: Path) -> None:
    trained(tmp_path / "run", config(epochs=4, density_warm_up=3))
    assert [row["best_epoch"] for row in log(tmp_path / "run")] == [-1, -1, -1, 3]


def test_patience_that_is_never_used_up_changes_no_bit_but_keeps_the_best(tmp_path: Path) -> None:
    with_it = trained(tmp_path / "a", config(epochs=3, patience=100, peak_rate=3e-3)).step.meter
    without = trained(tmp_path / "b", config(epochs=3, patience=0, peak_rate=3e-3)).step.meter
    assert with_it.state_dict().keys() == without.state_dict().keys()
    logs = [[{**row, "seconds": 0} for row in log(tmp_path / name)] for name in "ab"]
    for row in logs[0]:
        assert row.pop("best_epoch") in range(3)
    assert logs[0] == logs[1]
    ours, theirs = (load_weights(tmp_path / name / "model.safetensors")[0] for name in "ab")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours), "the last epoch of three was the best"


def test_early_stopping_needs_held_out_images_and_one_stage(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="none are held out; add --calibration"):
        trained(tmp_path / "a", config(held_out=0.0))
    with pytest.raises(DsuiError, match="c2ae trains its parts one after another, so it cannot stop early"):
        trained(tmp_path / "b", config("c2ae"))
    assert list(tmp_path.iterdir()) == []
