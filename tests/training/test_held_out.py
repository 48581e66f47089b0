"""Held-out accuracy while a run trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dsui.data.augment import Transform
from dsui.data.dataset import MemorySet, subset
from dsui.data.registry import load
from dsui.methods.registry import build
from dsui.runs.calibration import CALIBRATION, Calibration
from dsui.runs.images import held_out_images, training_images
from dsui.runs.recipe_file import load_recipe
from dsui.runs.weights import load_weights, read_metadata
from dsui.training.distributed import World
from dsui.training.held_out import FEWEST, MOST_BYTES, MOST_IMAGES, HeldOutMeasurement
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter
from tests.support.digit_runs import CPU, digit_config
from tests.training.test_training import EVERYTHING

Trained = tuple[dict[str, Tensor], list[dict[str, Any]], Tensor]


def trained(out: Path, method: str, measured: bool, data: str = "digits", **settings: Any) -> Trained:
    """Weights, log and the next random numbers."""
    config = digit_config(method, held_out=0.1, **settings)
    whole = load(data, "train")
    held_out = held_out_images(config, whole) if measured else None
    torch.manual_seed(5)
    fit(config, training_images(config, whole), out, CPU, World(), SilentReporter(), held_out=held_out)
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return load_weights(out / "model.safetensors")[0], rows, torch.rand(3)


@pytest.mark.parametrize(("method", "settings"), [("dsui", EVERYTHING), ("bbb", {"epochs": 3})])
def test_measuring_changes_no_bit_of_the_training(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    with_it, without = (
        trained(tmp_path / str(measured), method, measured, "digits-256", **settings) for measured in (True, False)
    )
    assert with_it[0].keys() == without[0].keys()
    assert [name for name in without[0] if not torch.equal(with_it[0][name], without[0][name])] == []
    assert torch.equal(with_it[2], without[2]), "the caller's random numbers"
    assert any("held_out_accuracy" in row for row in with_it[1])
    for row in (*with_it[1], *without[1]):
        del row["seconds"]
        row.pop("held_out_accuracy", None)
        row.pop("held_out_loss", None)
    assert with_it[1] == without[1]


def test_the_last_row_of_a_log_has_the_accuracy_that_calibration_finds(tmp_path: Path) -> None:
    rows = trained(tmp_path / "run", "msp", measured=True, epochs=3)[1]
    found = Calibration.from_text(read_metadata(tmp_path / "run" / "model.safetensors")[CALIBRATION])
    assert rows[-1]["held_out_accuracy"] == pytest.approx(1 - found.errors.double().mean().item(), abs=1e-12)
    assert rows[-1]["held_out_loss"] < rows[0]["held_out_loss"]
    accuracies = [row["held_out_accuracy"] for row in rows]
    assert accuracies[0] < accuracies[-1], "it is that of the epoch"
    keys = list(rows[0])
    assert keys.index("held_out_accuracy") > keys.index("accuracy"), "the terms of the loss stand before the accuracy"


def measurement(images: int, samples: int, side: int = 8, passes: int = 1, **settings: Any) -> HeldOutMeasurement:
    recipe = load_recipe("demo", "digits", {"epochs": 100, **settings})
    method = build("msp", "small", 1, 10, recipe)
    method.passes = passes
    whole = MemorySet("x", tuple("0123456789"), torch.zeros(1, 1, side, side, dtype=torch.uint8), torch.zeros(1).long())
    one = MemorySet("x", whole.classes, whole.images.expand(images, -1, -1, -1), torch.zeros(images).long())
    return HeldOutMeasurement(method, Transform(), one, samples=samples, recipe=recipe)


@pytest.mark.parametrize(
    ("images", "samples", "side", "passes", "chosen", "every"),
    [
        (26, 230, 8, 1, 26, 1),
        (1000, 9000, 8, 1, 540, 1),
        (5000, 45_000, 8, 1, MOST_IMAGES, 1),
        (20_000, 180_000, 2048, 1, MOST_BYTES // 2048**2, 1),
        (500, 1000, 8, 1, FEWEST, 1),
        (1000, 9000, 8, 10, 540, 5),
        (26, 230, 8, 100, 26, 95),
    ],
)
def test_of_many_images_some_are_measured_and_methods_of_many_passes_less_often(
    images: int, samples: int, side: int, passes: int, chosen: int, every: int
) -> None:
    measured = measurement(images, samples, side, passes)
    assert (len(measured.chosen), measured.every) == (chosen, every)
    assert len(measured.chosen.unique()) == chosen
    due = [epoch for epoch in range(100) if measured.due(epoch)]
    assert due == sorted({*range(every - 1, 100, every), 99}), "and after the last epoch"


def test_early_stopping_measures_every_method_after_every_epoch() -> None:
    assert measurement(26, 230, passes=100, patience=5).every == 1


def test_the_loss_is_the_cross_entropy_of_predictions_and_with_balance_the_mean_over_classes() -> None:
    whole = load("digits", "train")
    some = torch.cat([(whole.labels == 0).nonzero()[:9, 0], (whole.labels == 1).nonzero()[:1, 0]])
    held_out = subset(whole, some, "some")
    found = {}
    for balance in ("none", "sampling"):
        recipe = load_recipe("demo", "digits", {"balance": balance})
        torch.manual_seed(0)
        method, transform = build("dsui", "small", 1, 10, recipe), Transform()
        found[balance] = HeldOutMeasurement(method, transform, held_out, samples=90, recipe=recipe).measure(CPU)
    with torch.no_grad():
        logits = method.eval().predict(transform.plain(held_out.read(torch.arange(10)))).logits.double()
    each = -logits.log_softmax(1).gather(1, held_out.labels[:, None])[:, 0]
    accuracy, (first, last) = (logits.argmax(1) == held_out.labels).double().mean().item(), (each[:9], each[9])
    assert found["none"] == pytest.approx((accuracy, each.mean().item()), rel=1e-5)  # batches of float32 features
    assert found["sampling"] == pytest.approx((accuracy, (first.mean() + last).item() / 2), rel=1e-5)


def test_every_module_is_afterwards_in_the_mode_it_was_in() -> None:
    measured = measurement(3, 100)
    measured.method.train()
    frozen = next(module for module in measured.method.modules() if isinstance(module, torch.nn.BatchNorm2d))
    frozen.eval()
    measured.method.terms = {"cross_entropy": torch.ones(())}
    before = [module.training for module in measured.method.modules()]
    measured.measure(CPU)
    assert [module.training for module in measured.method.modules()] == before
    assert measured.method.training
    assert not frozen.training
    assert list(measured.method.terms) == ["cross_entropy"]
