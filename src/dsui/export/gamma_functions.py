"""Digamma and the logarithm of the gamma function in operations that ONNX has, for positive float64.

The recurrences raise the argument by n = STEPS, where the asymptotic series (Abramowitz and Stegun, 6.1.41 and 6.3.18)
is exact to rounding:

    psi(x) = psi(x + n) - sum_{k<n} 1 / (x + k),     psi(y) = ln y - 1 / 2y - sum_j B_2j / (2j y^2j)
    ln G(x) = ln G(x + n) - sum_{k<n} ln(x + k),     ln G(y) = (y - 1/2) ln y - y + ln(2 pi) / 2
                                                               + sum_j B_2j / (2j (2j - 1) y^(2j - 1))
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

STEPS = 12
"""From here on six terms of the series leave an error below 1e-15."""
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
"""B_2, B_4, ..., B_12"""


def digamma(x: Tensor) -> Tensor:
    """psi(x), x > 0."""
    raised = x + STEPS
    rest = _series(1 / raised.square(), [number / (2 * j) for j, number in enumerate(BERNOULLI, 1)])
    return raised.log() - 0.5 / raised - rest - (1 / _steps(x)).sum(-1)


def lgamma(x: Tensor) -> Tensor:
    """ln G(x), x > 0."""
    raised = x + STEPS
    terms = [number / (2 * j * (2 * j - 1)) for j, number in enumerate(BERNOULLI, 1)]
    rest = raised * _series(1 / raised.square(), terms)
    return (raised - 0.5) * raised.log() - raised + 0.5 * math.log(2 * math.pi) + rest - _steps(x).log().sum(-1)


def _steps(x: Tensor) -> Tensor:
    """x + k for k = 0, ..., n - 1, in a new last dimension."""
    return x.unsqueeze(-1) + torch.arange(STEPS, dtype=x.dtype, device=x.device)


def _series(power: Tensor, factors: list[float]) -> Tensor:
    """sum_j factor_j power^j, j from 1, by Horner's rule."""
    total = torch.zeros_like(power)
    for factor in reversed(factors):
        total = (total + factor) * power
    return total
