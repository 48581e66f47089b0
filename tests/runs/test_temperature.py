from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor

from dsui.evaluation.reliability import calibration_metrics
from dsui.runs import temperature
from dsui.runs.temperature import FEWEST_IMAGES, RANGE, fit_temperature, temperature_of


def nll(logits: Tensor, labels: Tensor) -> float:
    return calibration_metrics(logits, labels)["nll"]


def smoothed_nll(logits: Tensor, labels: Tensor) -> float:
    """By PyTorch, whose smoothing s leaves 1 - s (C - 1) / C on the label."""
    samples, classes = logits.shape
    smoothing = classes / (classes - 1) / (2 * (samples + 1))
    return F.cross_entropy(logits.double(), labels, label_smoothing=smoothing).item()


def sure(factor: float, seed: int = 0, samples: int = 400) -> tuple[Tensor, Tensor]:
    """Logits whose labels are drawn from their own softmax, and then multiplied."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, 6, dtype=torch.float64, generator=generator)
    return factor * logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


@settings(max_examples=15, deadline=None)
@given(st.floats(-3, 3), st.integers(0, 100))
def test_the_temperature_is_scipys_minimum_and_follows_the_scale_of_the_logits(power: float, seed: int) -> None:
    logits, labels = sure(1.0, seed)
    one = fit_temperature(logits, labels)
    oracle = minimize_scalar(lambda t: smoothed_nll(logits / t, labels), bounds=(0.1, 10), options={"xatol": 1e-9})
    assert one == pytest.approx(oracle.x, rel=1e-6)  # a minimum is found to half the digits of its value
    scaled = fit_temperature(10**power * logits, labels)
    if RANGE[0] * 1.01 < 10**power * one < RANGE[1] / 1.01:
        assert scaled == pytest.approx(10**power * one, rel=1e-9)  # the root of the slope, in float64


def test_overconfident_logits_are_recovered() -> None:
    logits, labels = sure(5.0, samples=20_000)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(5, rel=0.05)  # statistical, n = 20,000
    assert torch.equal((logits / found).argmax(1), logits.argmax(1))


@pytest.mark.parametrize("images", [60, 600, 6000])
def test_with_every_image_right_the_model_is_as_sure_as_so_many_images_allow(images: int) -> None:
    """The plain fit ends at T = 0, where the first error costs without end."""
    labels = torch.arange(6).repeat(images // 6)
    right = F.one_hot(labels, 6).double()
    for scale in (1.0, 50.0):
        found = fit_temperature(scale * right, labels)
        confidence = (scale * right / found).softmax(1).amax(1)
        expected = torch.full_like(confidence, 1 - 1 / (2 * (images + 1)))
        assert torch.allclose(confidence, expected, rtol=1e-9)  # the root of the slope, in float64


def test_misleading_and_empty_logits_end_at_the_end_of_the_range_and_at_one() -> None:
    labels = torch.arange(6).repeat(5)
    assert fit_temperature(-F.one_hot(labels, 6).double(), labels) == RANGE[1]
    assert fit_temperature(torch.ones(30, 6), labels) == 1


def test_a_few_held_out_images_help_and_fewer_are_not_used() -> None:
    """Logits three times too long: 50 images are enough to scale them for the better."""
    logits, labels = sure(1.0, samples=20_000)
    logits = 3 * logits
    unscaled = nll(logits, labels)
    for start in range(0, 1000, FEWEST_IMAGES):
        few = slice(start, start + FEWEST_IMAGES)
        found = temperature_of(logits[few], labels[few])
        assert found is not None
        assert nll(logits / found, labels) < unscaled
    assert temperature_of(logits[: FEWEST_IMAGES - 1], labels[: FEWEST_IMAGES - 1]) is None
    logits[0, 0] = -torch.inf
    assert temperature_of(logits, labels) is None


def test_chunks_and_precision_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = sure(3.0)
    whole = fit_temperature(logits, labels)
    monkeypatch.setattr(temperature, "CHUNK_ELEMENTS", 50)
    assert fit_temperature(logits, labels) == pytest.approx(whole, rel=1e-9)  # float64 sums in another order
    assert fit_temperature(logits.float(), labels) == pytest.approx(whole, rel=1e-6)  # logits rounded to float32


def test_bad_input_is_refused_in_a_sentence() -> None:
    logits, labels = sure(1.0)
    with pytest.raises(ValueError, match=r"logits have shape \[0, 3\]; at least one sample"):
        fit_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="labels run from 0 to 5; 5 classes need labels 0 to 4"):
        fit_temperature(logits[:, :5], labels)
    with pytest.raises(ValueError, match="some logits are NaN or infinite"):
        fit_temperature(logits.log(), labels)
