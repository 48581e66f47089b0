"""The modified Bessel function of the first kind in logarithms, for orders and arguments that overflow elsewhere.

From order 20 on the uniform expansion (DLMF 10.41.3), with z = x / v, s = sqrt(1 + z^2) and p = 1 / s:

    ln I_v(x) = v (s + ln z - ln(1 + s)) - 1/2 ln(2 pi v s) + ln(1 + U_1(p) / v + ... + U_4(p) / v^4)

Smaller orders are reached from there downwards by the ratios r_k = I_{k+1}(x) / I_k(x), which is stable:

    r_{k-1} = 1 / (2 k / x + r_k),    ln I_{k-1} = ln I_k - ln r_{k-1}

Everything is float64. Tests compare with mpmath: orders 0 to 2,047 and arguments 1e-2 to 1e6 to 1e-9, relative to
max(1, |ln I|). The formulas are differentiated as they stand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST_ORDER = 20.0
"""Where the expansion begins; its first missing term, U_5 / v^5, is then below 1e-8."""
EXPANSION = (
    ((1, 3 / 24), (3, -5 / 24)),
    ((2, 81 / 1152), (4, -462 / 1152), (6, 385 / 1152)),
    ((3, 30375 / 414720), (5, -369603 / 414720), (7, 765765 / 414720), (9, -425425 / 414720)),
    (
        (4, 4465125 / 39813120),
        (6, -94121676 / 39813120),
        (8, 349922430 / 39813120),
        (10, -446185740 / 39813120),
        (12, 185910725 / 39813120),
    ),
)
"""U_1 to U_4 as powers of p with their factors (DLMF 10.41.10)."""


def log_bessel(order: float, x: Tensor) -> Tensor:
    """ln(I_v(x) exp(-x)) of positive x, in float64; without the factor it would lose the digits of a large x."""
    return _values(order, x)[0]


def bessel_ratio(order: float, x: Tensor) -> Tensor:
    """I_{v+1}(x) / I_v(x) of positive x, in float64; between 0 and 1."""
    return _values(order, x)[1]


def _values(order: float, x: Tensor) -> tuple[Tensor, Tensor]:
    """ln(I_v(x) exp(-x)) and I_{v+1}(x) / I_v(x)."""
    x = x.double()
    steps = max(0, math.ceil(LEAST_ORDER - order))
    top = order + steps
    value = _expansion(top, x)
    ratio = (_expansion(top + 1, x) - value).exp()
    for step in range(steps):
        ratio = 1 / (2 * (top - step) / x + ratio)
        value = value - ratio.log()
    return value, ratio


def _expansion(order: float, x: Tensor) -> Tensor:
    """ln(I_v(x) exp(-x)) of an order of at least 20; v s - x is v^2 / (v s + x), which keeps digits of a large x."""
    z = x / order
    s = (1 + z.square()).sqrt()
    p = 1 / s
    series = torch.ones_like(p)
    for power, terms in enumerate(EXPANSION, start=1):
        series = series + sum((factor * p**exponent for exponent, factor in terms), torch.zeros_like(p)) / order**power
    exponent = order * (z.log() - s.log1p()) + order**2 / (order * s + x)
    return exponent - 0.5 * (2 * math.pi * order * s).log() + series.log()
