from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dsui.evaluation.intervals import auroc_interval, chance_ece, share_interval
from dsui.evaluation.metrics import auroc
from dsui.evaluation.reliability import ece


@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_interval_of_a_share_is_that_of_scipy(images: int, share: float) -> None:
    count = round(share * images)
    expected = stats.binomtest(count, images).proportion_ci(0.95, method="wilson")
    assert share_interval(count / images, images) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.integers(1, 100_000))
def test_none_and_all_are_the_ends_of_their_intervals(images: int) -> None:
    assert share_interval(0.0, images).low == 0
    assert share_interval(1.0, images).high == 1


def test_without_images_every_share_and_every_auroc_is_possible() -> None:
    assert share_interval(0.5, 0) == auroc_interval(0.5, 0, 9) == auroc_interval(0.5, 9, 0) == (0, 1)


@given(st.floats(0, 1), st.integers(1, 1000), st.integers(1, 1000))
def test_the_interval_of_an_auroc_holds_it_and_turns_around_with_it(value: float, errors: int, others: int) -> None:
    low, high = auroc_interval(value, errors, others)
    assert 0 <= low <= value <= high <= 1
    turned = auroc_interval(1 - value, others, errors)
    assert turned == pytest.approx((1 - high, 1 - low), abs=1e-6)  # 1 - value is rounded, and the edge is steep there


def test_a_perfect_auroc_of_few_errors_is_not_certain() -> None:
    assert auroc_interval(1.0, 3, 200).low < 0.8
    assert auroc_interval(1.0, 300, 2000).low > 0.98


@pytest.mark.parametrize(("errors", "others", "shift"), [(10, 100, 1.0), (30, 300, 2.0), (8, 40, 2.5)])
def test_the_interval_of_an_auroc_holds_the_true_one_in_95_of_100_draws(errors: int, others: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(0)
    true = stats.norm.cdf(shift / 2**0.5)
    positive, held, draws = torch.arange(errors + others) < errors, 0, 400
    for _ in range(draws):
        scores = torch.randn(errors + others, generator=generator) + shift * positive
        low, high = auroc_interval(auroc(scores, positive), errors, others)
        held += low <= true <= high
    assert held / draws > 0.92  # 95 %, less three deviations of 400 draws


@pytest.mark.parametrize("images", [100, 1000])
def test_calibrated_probabilities_have_no_larger_ece_on_average_than_chance_gives(images: int) -> None:
    generator = torch.Generator().manual_seed(images)
    found = []
    for _ in range(100):
        confidence = 0.6 + 0.4 * torch.rand(images, generator=generator, dtype=torch.float64)
        found.append(ece(confidence, torch.rand(images, generator=generator) < confidence))
    mean, most = sum(found) / 100, chance_ece(0.8, images)
    assert 0.5 * most < mean <= most
