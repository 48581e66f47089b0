"""Tails by probability-weighted moments: against scipy's distribution, and the threshold against a closed form."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import genpareto

from dsui.pareto import fit_upper_tail, threshold_between


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.3])
def test_the_tail_of_a_generalised_pareto_sample_is_found_again(shape: float) -> None:
    x = torch.from_numpy(genpareto.rvs(shape, scale=2, size=200_000, random_state=0))
    tail = fit_upper_tail(x)
    # above u the excesses of such a distribution have the same shape and the scale s + shape u
    assert -tail.k.item() == pytest.approx(shape, abs=0.03)  # its deviation is about 0.01 with 20,000 excesses
    assert tail.s.item() == pytest.approx(2 + shape * tail.start.item(), rel=0.04)
    points = torch.linspace(0, 8, 50, dtype=torch.float64)
    expected = torch.from_numpy(genpareto.sf(points, shape, scale=2))
    torch.testing.assert_close(tail.above(points), expected, rtol=0, atol=0.005)  # a share of 200,000: 0.0011
    assert tail.above(points).diff().max() <= 0


def test_beyond_the_end_of_a_short_tail_there_is_nothing() -> None:
    tail = fit_upper_tail(torch.linspace(0, 1, 1001, dtype=torch.float64))  # uniform: the shape is -1
    assert tail.k.item() == pytest.approx(1, abs=0.02)
    assert tail.above(torch.tensor([1.1], dtype=torch.float64)).item() == 0


def test_the_threshold_between_two_normal_samples_is_where_their_densities_meet() -> None:
    generator = torch.Generator().manual_seed(0)
    low, high = (torch.randn(50_000, generator=generator, dtype=torch.float64) * s + m for m, s in ((0, 1), (3, 0.5)))
    meeting = (12 - math.sqrt(144 - 6 * (18 - math.log(2)))) / 3  # 1.5 x^2 - 12 x + 18 = ln 2
    assert math.exp(-(meeting**2) / 2) == pytest.approx(2 * math.exp(-2 * (meeting - 3) ** 2))
    assert threshold_between(low, high).item() == pytest.approx(meeting, abs=0.1)  # the sum is flat there


def test_samples_that_do_not_overlap_are_parted() -> None:
    low, high = torch.linspace(0, 1, 100, dtype=torch.float64), torch.linspace(2, 3, 100, dtype=torch.float64)
    assert 0.99 < threshold_between(low, high).item() < 2.01
