"""Digamma and the log-gamma function in plain operations, against scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from dsui.export.gamma_functions import digamma, lgamma


@pytest.mark.parametrize(("own", "oracle"), [(digamma, special.digamma), (lgamma, special.gammaln)])
def test_agrees_with_scipy_over_sixteen_decades(
    own: Callable[[Tensor], Tensor], oracle: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> None:
    x = torch.logspace(-8, 8, 2000, dtype=torch.float64)
    found, expected = own(x).numpy(), oracle(x.numpy())
    # the sum of twelve logarithms near ln 12! = 20 loses a few of 2^-53
    assert (np.abs(found - expected) / np.maximum(1, np.abs(expected))).max() < 5e-14
