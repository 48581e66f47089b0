from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor

from dsui.evaluation import temperature
from dsui.evaluation.reliability import calibration_metrics
from dsui.evaluation.temperature import RANGE, fit_temperature


def nll(logits: Tensor, labels: Tensor) -> float:
    return calibration_metrics(logits, labels)["nll"]


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
    oracle = minimize_scalar(lambda t: nll(logits / t, labels), bounds=(0.1, 10), options={"xatol": 1e-9})
    assert one == pytest.approx(oracle.x, rel=1e-6)  # a minimum is found to half the digits of its value
    scaled = fit_temperature(10**power * logits, labels)
    if RANGE[0] * 1.01 < 10**power * one < RANGE[1] / 1.01:
        assert scaled == pytest.approx(10**power * one, rel=1e-9)  # the root of the slope, in float64


def test_overconfident_logits_are_recovered() -> None:
    assert fit_temperature(*sure(5.0, samples=20_000)) == pytest.approx(5, rel=0.05)  # statistical, n = 20,000


def test_separable_and_misleading_logits_end_at_the_ends_of_the_range() -> None:
    labels = torch.arange(6).repeat(5)
    right = torch.nn.functional.one_hot(labels, 6).double()
    assert fit_temperature(right, labels) == RANGE[0]
    assert fit_temperature(1e6 * right, labels) == 1, "no slope is left in float64: every temperature is as good"
    assert fit_temperature(-right, labels) == RANGE[1]
    assert fit_temperature(torch.ones(30, 6), labels) == 1


def test_one_error_among_very_sure_samples_has_a_minimum_far_out() -> None:
    labels = torch.arange(6).repeat(1000)
    logits = torch.nn.functional.one_hot(labels, 6).double()
    logits[0] = 0
    logits[0, 1] = 1e-3  # off by little: p of the others must be nearly 1 before this matters
    found = fit_temperature(logits, labels)
    assert RANGE[0] < found < 0.1
    best = nll(logits / found, labels)
    assert best <= min(nll(logits / (found * factor), labels) for factor in (0.999, 1.001))


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
