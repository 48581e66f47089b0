"""How often an epoch meets each image: whole weights exactly, others on the mean, classes evenly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dsui.data.sampling import balanced, check_weights, drawn_places, epoch_length


def met(weights: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """[N] how often each image is met."""
    places = drawn_places(weights, labels, torch.Generator().manual_seed(seed))
    assert len(places) == epoch_length(weights)
    assert len(places.unique()) == len(places), "no two places are equal, so copies are augmented apart"
    return torch.bincount(places % len(weights), minlength=len(weights))


@given(st.lists(st.integers(0, 7), min_size=1, max_size=40).filter(any), st.integers(0, 99))
def test_an_image_of_a_whole_weight_is_met_exactly_so_often(whole: list[int], seed: int) -> None:
    weights = torch.tensor(whole, dtype=torch.float64)
    assert met(weights, torch.arange(len(whole)) % 3, seed).tolist() == whole


def test_the_copies_of_an_image_have_places_of_their_own() -> None:
    places = drawn_places(torch.tensor([1.0, 3.0]), torch.tensor([0, 1]), torch.Generator().manual_seed(0))
    assert places.tolist() == [0, 1, 3, 5]


def test_other_weights_hold_on_the_mean_and_never_miss_by_one() -> None:
    weights = torch.tensor([0.25, 1.5, 2.0, 0.25, 3.7, 0.3], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    draws = torch.stack([met(weights, labels, seed) for seed in range(2000)]).double()
    assert bool(((draws - weights).abs() < 1).all())
    # a count is off by less than 1, so the mean of 2,000 has a deviation of at most 0.5 / sqrt(2000) = 0.011
    torch.testing.assert_close(draws.mean(0), weights, rtol=0, atol=0.05)


def test_balanced_classes_are_met_equally_often_and_their_images_in_turn() -> None:
    labels = torch.tensor([0] * 40 + [1] * 41 + [2] * 3 + [3])
    weights = balanced(labels, 4, torch.ones(len(labels), dtype=torch.float64))
    assert weights.sum().item() == pytest.approx(85)
    draws = torch.stack([met(weights, labels, seed) for seed in range(200)])
    of_class = torch.stack([draws[:, labels == c].sum(1) for c in range(4)], 1)
    assert of_class.min() >= 21
    assert of_class.max() <= 22  # 85 / 4 = 21.25
    assert draws[:, labels == 0].max() == 1, "no image of a large class is met twice while another one waits"
    assert draws[:, labels == 0].sum(0).min() > 60, "and none is forgotten; 106 expected, deviation 7"


def test_weights_share_a_balanced_class() -> None:
    labels = torch.tensor([0, 0, 1])
    found = balanced(labels, 2, torch.tensor([3.0, 1.0, 4.0], dtype=torch.float64))
    assert found.tolist() == [3, 1, 4]
    assert balanced(labels, 3, torch.tensor([1.0, 1.0, 2.0]))[2] == 2, "a class without images takes no part"


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1.0], "give one number for each image"),
        ([1.0, -1.0], "negative or not finite"),
        ([1.0, float("nan")], "negative or not finite"),
        ([0.0, 0.0], "must not be 0 for all images"),
    ],
)
def test_weights_that_say_nothing_are_refused(weights: list[float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_weights(torch.tensor(weights), 2)
