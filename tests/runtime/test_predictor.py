"""What an ONNX file gives through `OnnxPredictor`, against the same in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsui.runtime import OnnxPredictor
from tests.support.onnx_model import CLASSES, LIMITS, expected_outputs, write_onnx_model

SINGLE = {"rtol": 1e-5, "atol": 1e-6}  # float32 against float64


def images(count: int, channels: int = 3, size: int = 8) -> Any:
    """Images of one colour each with a little noise, so that their means differ."""
    generator = np.random.default_rng(1)
    colours = generator.integers(0, 256, (count, 1, 1, channels))
    noise = generator.integers(-20, 21, (count, size, size, channels))
    return np.clip(colours + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_onnx_model(tmp_path / "tiny.onnx", limits=("uncertainty", "foreignness"))
    return tmp_path / "tiny.onnx"


def test_every_field_is_that_of_the_formula(model: Path) -> None:
    pixels = images(50)
    prediction = OnnxPredictor(model).predict(pixels, batch=16)
    expected = expected_outputs(pixels)
    p = expected["probabilities"]
    assert prediction.label.tolist() == [CLASSES[each] for each in expected["label"]]
    np.testing.assert_allclose(prediction.probabilities, p, **SINGLE)
    np.testing.assert_allclose(prediction.max_probability, p.max(1), **SINGLE)
    np.testing.assert_allclose(prediction.entropy, -(p * np.log(p)).sum(1), rtol=1e-4, atol=1e-6)
    for name in ("uncertainty", "foreignness", "log_density"):
        np.testing.assert_allclose(getattr(prediction, name), expected[name], **SINGLE)
    uncertain = expected["uncertainty"] > LIMITS["uncertainty"]["value"]
    foreign = expected["foreignness"] > LIMITS["foreignness"]["value"]
    assert prediction.abnormal is not None
    assert prediction.reason is not None
    assert prediction.abnormal.tolist() == (uncertain | foreign).tolist()
    words = {(0, 0): "", (1, 0): "uncertain", (0, 1): "foreign", (1, 1): "uncertain and foreign"}
    assert prediction.reason.tolist() == [words[u, f] for u, f in zip(uncertain, foreign, strict=True)]
    assert {"", "foreign"} < set(prediction.reason.tolist())
    assert list(prediction.scores) == ["uncertainty", "foreignness"]
