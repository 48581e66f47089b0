"""The Bessel function in logarithms agrees with mpmath where numbers overflow, and so do its derivatives."""

from __future__ import annotations

import mpmath
import pytest
import torch

from dsui.families.bessel import bessel_ratio, log_bessel

ARGUMENTS = (1e-2, 0.3, 1.0, 5.0, 20.0, 100.0, 1e3, 1e4, 1e6)
ORDERS = (0, 0.5, 1, 7.5, 19.5, 31, 255, 2047)
"""v = M / 2 - 1 for M from 2 to 4,096."""


@pytest.mark.parametrize("order", ORDERS)
def test_logarithm_and_ratio_agree_with_mpmath(order: float) -> None:
    x = torch.tensor(ARGUMENTS, dtype=torch.float64)
    with mpmath.workdps(40):
        values = [(mpmath.besseli(order, each), mpmath.besseli(order + 1, each)) for each in ARGUMENTS]
        logs = [float(mpmath.log(value) - each) for (value, _), each in zip(values, ARGUMENTS, strict=True)]
        ratios = [float(following / value) for value, following in values]
    # the expansion's first missing term is below 1e-8
    torch.testing.assert_close(log_bessel(order, x), torch.tensor(logs, dtype=torch.float64), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(bessel_ratio(order, x), torch.tensor(ratios, dtype=torch.float64), rtol=1e-8, atol=0)


@pytest.mark.parametrize("order", ORDERS)
def test_the_derivative_is_the_ratio(order: float) -> None:
    """d/dx ln(I_v exp(-x)) = I_{v+1} / I_v + v / x - 1"""
    x = torch.tensor(ARGUMENTS, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(log_bessel(order, x).sum(), x)
    expected = bessel_ratio(order, x) + order / x - 1
    # where x is large both sides vanish, as a difference of numbers near 1
    torch.testing.assert_close(slope, expected.detach(), rtol=1e-6, atol=1e-8)
