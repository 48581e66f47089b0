"""A run and the file exported from it give the same, field by field: digits, noise and files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.export.run_export import export_run
from dsui.prediction import Prediction
from dsui.runtime import OnnxPredictor
from tests.support.digit_runs import calibrated, own_copy

CLOSE = 1e-4
"""What an export may change of a probability, and how near to a threshold a decision may turn (issue of the export)."""


class Pair(NamedTuple):
    run: Predictor
    file: OnnxPredictor


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A run of two epochs with two thresholds, and its file."""
    folder = tmp_path_factory.mktemp("pair")
    run = own_copy(calibrated(), folder / "run")
    chosen = Predictor.load(run, "cpu")
    chosen.threshold(coverage=0.9, two=True)
    chosen.save_threshold()
    export_run(run, folder / "model.onnx")
    return Pair(Predictor.load(run, "cpu"), OnnxPredictor(folder / "model.onnx"))


def compare(expected: Prediction, found: Prediction, thresholds: dict[str, float]) -> None:
    tolerances: dict[str, Any] = {"log_density": {"rtol": 1e-3, "atol": 0.0}}
    for each in fields(Prediction):
        left, right = getattr(expected, each.name), getattr(found, each.name)
        if left is None or each.name in {"abnormal", "reason", "scores"}:
            assert (left is None) == (right is None)
        elif left.dtype.kind == "f":
            assert right.dtype == left.dtype
            # scores are logarithms of sums of some dozens; what float32 loses of them is relative
            np.testing.assert_allclose(right, left, **tolerances.get(each.name, {"rtol": 1e-4, "atol": CLOSE}))
        else:
            assert right.tolist() == left.tolist()
    assert list(found.scores) == list(expected.scores) == list(thresholds)
    near = np.zeros(len(expected), dtype=bool)
    for name, values in expected.scores.items():
        np.testing.assert_allclose(found.scores[name], values, rtol=1e-4, atol=CLOSE)
        near |= abs(values - thresholds[name]) <= CLOSE * max(1.0, abs(thresholds[name]))
    assert near.mean() < 0.02  # so that the next lines compare nearly everything
    for left, right in ((expected.abnormal, found.abnormal), (expected.reason, found.reason)):
        assert left is not None
        assert right is not None
        assert right[~near].tolist() == left[~near].tolist()


def limits_of(pair: Pair) -> dict[str, float]:
    assert pair.run.chosen is not None
    assert pair.file.thresholds is not None
    assert pair.file.thresholds.limits == pair.run.chosen.limits
    assert pair.file.thresholds.asked == pair.run.chosen.asked
    return {each.score: each.value for each in pair.run.chosen.limits}


def test_digits_and_noise_are_predicted_alike(pair: Pair) -> None:
    digits = load("digits", "test")
    noise = torch.randint(256, (100, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images = torch.cat([digits.read(torch.arange(400)), noise])
    expected = pair.run.predict(images)
    assert expected.abnormal is not None
    assert 0 < expected.abnormal.mean() < 1
    compare(expected, pair.file.predict(images.numpy(), batch=77), limits_of(pair))


def test_files_of_every_kind_are_predicted_alike(pair: Pair, tmp_path: Path) -> None:
    generator, files = np.random.default_rng(0), []
    kinds = [("L", "png"), ("RGB", "jpg"), ("RGBA", "png"), ("CMYK", "tif"), ("P", "gif")]
    for number, (mode, ending) in enumerate(kinds):
        noise = Image.fromarray(generator.integers(0, 256, (30, 47, 3), dtype=np.uint8)).convert(mode)
        files.append(tmp_path / f"{number}.{ending}")
        noise.save(files[-1])
    compare(pair.run.predict(files), pair.file.predict(files), limits_of(pair))


def test_the_file_knows_what_the_run_is(pair: Pair) -> None:
    facts, run = pair.file.facts, pair.run.model.facts
    assert facts.classes == tuple(run.classes)
    assert (facts.method, facts.backbone, facts.data) == (run.config.method, run.config.backbone, run.config.data)
    assert (facts.channels, facts.size, facts.preparation) == (1, 8, None)
    assert facts.calibration is not None
    assert facts.calibration.images == len(pair.run.calibration.errors)
    assert facts.calibration.errors == int(pair.run.calibration.errors.sum())
