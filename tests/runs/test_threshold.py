"""What a threshold by coverage promises, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dsui.errors import DsuiError
from dsui.runs.threshold import at_coverage, at_risk

NONE_WRONG = torch.zeros(1000, dtype=torch.bool)


@pytest.mark.parametrize(("count", "coverage"), [(19, 0.95), (100, 0.95), (57, 0.8), (300, 0.99), (1000, 0.5)])
def test_a_new_image_is_accepted_with_the_chance_that_was_asked_for(count: int, coverage: float) -> None:
    """Uncertainties uniform on [0, 1]: the chance of acceptance is the threshold itself, Beta(k, n + 1 - k)."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(2000, count, generator=generator, dtype=torch.float64)
    accepted = np.array([at_coverage(each, NONE_WRONG[:count], coverage).value for each in draws])
    mean, error = accepted.mean(), accepted.std() / math.sqrt(len(accepted))
    assert coverage - 4 * error < mean < coverage + 1 / (count + 1) + 4 * error  # four deviations: 1 in 15,000


def test_the_threshold_by_coverage_is_an_order_statistic_and_says_what_it_keeps() -> None:
    scores = torch.arange(100, dtype=torch.float64).flip(0)
    errors = scores >= 90
    chosen = at_coverage(scores, errors, 0.95)
    assert chosen == (95, 0.96, 6 / 96, 100)  # ceil(101 * 0.95) = 96 values: 0 to 95
    assert at_coverage(scores, errors, 0.5).risk == 0
    assert at_coverage(scores[1:], errors[1:], 0.55).value == 54  # 100 * 0.55 is 55.00000000000001 in float64


@pytest.mark.parametrize(
    ("coverage", "needed"), [(0.95, 19), (0.9, 9), (0.5, 1), (0.99, 99), (0.999, 999), (0.9999, 9999)]
)
def test_too_few_images_for_a_coverage_are_told_with_how_many_it_takes(coverage: float, needed: int) -> None:
    scores = torch.arange(needed, dtype=torch.float64)
    right = torch.zeros(needed, dtype=torch.bool)
    assert at_coverage(scores, right, coverage).value == needed - 1
    with pytest.raises(DsuiError, match=f"takes at least {needed} calibration images and there are {needed - 1}; "):
        at_coverage(scores[1:], right[1:], coverage)


def test_images_that_tie_with_the_last_are_accepted_too_and_counted() -> None:
    scores = torch.tensor([0.0] * 10 + [1.0] * 90, dtype=torch.float64)
    assert at_coverage(scores, NONE_WRONG[:100], 0.5) == (1.0, 1.0, 0.0, 100)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_share_that_is_none_is_told_by_value(share: float) -> None:
    scores = torch.rand(1000)
    with pytest.raises(ValueError, match="coverage must be a share of the images between 0 and 1"):
        at_coverage(scores, NONE_WRONG, share)
    with pytest.raises(ValueError, match="risk must be a share of wrong predictions between 0 and 1"):
        at_risk(scores, NONE_WRONG, share)
