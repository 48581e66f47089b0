"""Digamma and the logarithm of the gamma function in operations that ONNX has, for positive float64.

The argument is raised to at least STEPS + x by the recurrences, where the asymptotic series (Abramowitz and Stegun,
6.1.41 and 6.3.18) is exact to rounding:

    psi(x) = psi(x + n) - sum_k 1 / (x + k),        psi(y) ~ ln y - 1/(2y) - sum_j B_2j / (2j y^2j)
    ln G(x) = ln G(x + n) - sum_k ln(x + k),        ln G(y) ~ (y - 1/2) ln y - y + ln(2 pi)/2 + sum_j ...
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

STEPS = 12
"""From here on six terms of the series are exact to 1e-15."""
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


def digamma(x: Tensor) -> Tensor:
    """psi(x), x > 0."""
    raised = x + STEPS
    inverse = 1 / (raised * raised)
    series, power = torch.zeros_like(x), inverse
    for j, number in enumerate(BERNOULLI, 1):
        series, power = series + number / (2 * j) * power, power * inverse
    lowered = sum((1 / (x + k) for k in range(STEPS)), torch.zeros_like(x))
    return raised.log() - 0.5 / raised - series - lowered


def lgamma(x: Tensor) -> Tensor:
    """ln G(x), x > 0."""
    raised = x + STEPS
    inverse = 1 / (raised * raised)
    series, power = torch.zeros_like(x), 1 / raised
    for j, number in enumerate(BERNOULLI, 1):
        series, power = series + number / (2 * j * (2 * j - 1)) * power, power * inverse
    lowered = sum(((x + k).log() for k in range(STEPS)), torch.zeros_like(x))
    return (raised - 0.5) * raised.log() - raised + 0.5 * math.log(2 * math.pi) + series - lowered
