"""Divergences and uncertainties of Dirichlet distributions against torch.distributions, mpmath and sampling."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Dirichlet
from torch.distributions import kl_divergence as reference_kl

from dsui.methods.dirichlet import (
    bounded_concentrations,
    differential_entropy,
    kl_divergence,
    label_concentrations,
    mutual_information,
)

CLASSES = (2, 10, 200)


def drawn(classes: int, deviation: float, rows: int = 16, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return deviation * torch.randn(rows, classes, generator=generator)


@pytest.mark.parametrize("classes", CLASSES)
def test_divergence_is_that_of_torch_distributions(classes: int) -> None:
    first, second = (drawn(classes, 2.0, seed=seed).double().exp() for seed in range(2))
    expected = reference_kl(Dirichlet(first), Dirichlet(second))
    torch.testing.assert_close(kl_divergence(first, second), expected, rtol=1e-10, atol=1e-10)  # float64, sums of 200


def test_divergence_is_zero_for_equals_and_positive_for_others() -> None:
    first, second = (drawn(10, 2.0, rows=200, seed=seed).double().exp() for seed in range(2))
    assert kl_divergence(first, first).abs().max() < 1e-10  # rounding of terms of size 1e3
    assert (kl_divergence(first, second) > 0).all()


def test_target_has_the_concentration_on_the_label_above_a_flat_base() -> None:
    target = label_concentrations(torch.tensor([2, 0]), 3, 100.0)
    assert target.tolist() == [[1, 1, 101], [101, 1, 1]]
    assert target.dtype == torch.float64


def exact(logits: Tensor) -> tuple[float, float]:
    """Mutual information and differential entropy of one row by their definitions, with 150 digits."""
    with mpmath.workdps(150):
        alpha = [mpmath.exp(mpmath.mpf(value)) for value in logits.tolist()]
        total = mpmath.fsum(alpha)
        digamma = mpmath.digamma
        information = -mpmath.fsum(
            a / total * (mpmath.log(a / total) - digamma(a + 1) + digamma(total + 1)) for a in alpha
        )
        normalizer = mpmath.fsum(mpmath.loggamma(a) for a in alpha) - mpmath.loggamma(total)
        entropy = normalizer - mpmath.fsum((a - 1) * (digamma(a) - digamma(total)) for a in alpha)
        return float(information), float(entropy)


@pytest.mark.parametrize("deviation", [0.5, 5.0, 30.0])
@pytest.mark.parametrize("shift", [0.0, 3.4, 20.0])  # 3.4: alphas on both sides of where the series begins
def test_uncertainties_keep_their_digits_however_large_alpha(deviation: float, shift: float) -> None:
    logits = drawn(10, deviation, rows=8) + shift
    expected = torch.tensor([exact(row) for row in logits], dtype=torch.float64)
    found = torch.stack([mutual_information(logits), differential_entropy(logits)], 1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)  # what the cut series promise


def test_uncertainties_are_what_sampling_finds() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5]])
    torch.manual_seed(0)
    family = Dirichlet(logits.double().exp())
    samples = family.sample((200_000,))
    entropies = -torch.special.xlogy(samples, samples).sum(-1)
    densities = -family.log_prob(samples)
    mean_entropy = torch.special.entr(family.mean).sum(-1)
    for found, drawn_values in (
        (mean_entropy - mutual_information(logits), entropies),
        (differential_entropy(logits), densities),
    ):
        error = drawn_values.std(0) / len(samples) ** 0.5
        assert ((found - drawn_values.mean(0)).abs() < 4 * error).all()  # 4 standard errors; the seed is fixed


@given(st.lists(st.floats(-1e4, 1e4) | st.floats(-5, 5), min_size=2, max_size=12))
@settings(max_examples=200, deadline=None)
def test_mutual_information_is_never_negative_nor_above_the_entropy_of_the_mean(logits: list[float]) -> None:
    row = torch.tensor([logits], dtype=torch.float64)
    information = mutual_information(row).item()
    entropy = torch.special.entr(row.clamp(-300, 300).softmax(1)).sum().item()
    assert 0 <= information <= entropy + 1e-12  # rounding of sums of 12 terms of size one
    assert math.isfinite(differential_entropy(row).item())


@pytest.mark.parametrize("classes", CLASSES)
def test_flat_dirichlet_has_entropy_minus_log_gamma_of_the_classes(classes: int) -> None:
    found = differential_entropy(torch.zeros(1, classes)).item()
    assert found == pytest.approx(-math.lgamma(classes), rel=1e-13)  # float64


@pytest.mark.parametrize("classes", CLASSES)
def test_more_concentration_at_the_same_mean_is_less_uncertainty(classes: int) -> None:
    logits = drawn(classes, 1.0, rows=1) + torch.linspace(2, 40, 100)[:, None]
    assert (mutual_information(logits).diff() < 0).all()
    assert (differential_entropy(logits).diff() < 0).all()


def test_bounded_concentrations_keep_the_gradient_of_the_bound() -> None:
    logits = torch.tensor([[-30.0, 27.0, 30.0], [-30.0, -1.0, 2.0]], requires_grad=True)
    alpha = bounded_concentrations(logits, 0.01, 1000.0)
    expected = [
        [0.01, 1000 * math.exp(-3), 1000],
        [0.01, math.exp(-1), math.exp(2)],
    ]  # which class is ahead, and how far
    torch.testing.assert_close(
        alpha.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0
    )  # one exp in float64
    alpha.sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, alpha.detach().float())  # d exp(y) / dy = exp(y)
