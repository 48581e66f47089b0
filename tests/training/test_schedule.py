"""Learning rates: the authors' figures, and what holds for every length."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsui.runs.recipe_file import load_recipe
from dsui.training.schedule import rates

PAPER = load_recipe("paper", "cifar10")
MODERN = load_recipe("modern", "cifar10")

peaks = st.floats(1e-9, 10)
steps = st.integers(1, 20)


@st.composite
def lengths(draw: st.DrawFn, least: int, short: int) -> tuple[int, int]:
    """Epochs, and a part of them that is at least `least` and `short` less than all at most."""
    epochs = draw(st.integers(1, 150))
    return epochs, draw(st.integers(least, epochs - short))


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(0, "7.500e-05"), (34, "7.307e-04"), (35, "7.500e-04"), (69, "9.429e-05"), (70, "7.500e-05"), (99, "3.467e-06")],
)
def test_one_cycle_has_the_rates_of_the_authors_script(epoch: int, rate: str) -> None:
    found = rates(PAPER, steps_per_epoch=3)
    assert found.shape == (300,)
    assert found.dtype == torch.float64
    assert [f"{step:.3e}" for step in found.view(100, 3)[epoch].tolist()] == [rate] * 3


@given(lengths(least=1, short=0), peaks, steps)
def test_one_cycle_follows_its_three_lines(epochs_and_cycle: tuple[int, int], peak: float, per_epoch: int) -> None:
    epochs, cycle = epochs_and_cycle
    found = rates(replace(PAPER, epochs=epochs, cycle=cycle, peak_rate=peak), per_epoch).view(epochs, per_epoch)
    assert torch.equal(found, found[:, :1].expand_as(found))
    half, start, lowest = cycle // 2, peak / 10, min(1e-6, peak / 10)
    for epoch, rate in enumerate(found[:, 0].tolist()):
        if epoch < half:
            expected = start + 0.9 * peak / half * epoch
        elif epoch < cycle:
            expected = start + 0.9 * peak / (cycle - half) * (cycle - epoch)
        else:
            expected = start - (start - lowest) / (epochs - cycle) * (epoch - cycle)
        assert rate == pytest.approx(expected, rel=1e-12)  # a handful of float64 roundings


@given(lengths(least=1, short=0), peaks)
def test_one_cycle_is_positive_and_peaks_at_the_peak_rate(epochs_and_cycle: tuple[int, int], peak: float) -> None:
    epochs, cycle = epochs_and_cycle
    found = rates(replace(PAPER, epochs=epochs, cycle=cycle, peak_rate=peak), 1)
    assert found.min() > 0
    assert found.max() == found[cycle // 2] == peak
    assert (found[: cycle // 2 + 1].diff() > 0).all()
    assert (found[cycle // 2 :].diff() <= 0).all()


@given(lengths(least=0, short=1), peaks, steps)
def test_cosine_rises_in_a_line_and_falls_to_almost_nothing(
    epochs_and_warm_up: tuple[int, int], peak: float, per_epoch: int
) -> None:
    epochs, warm_up = epochs_and_warm_up
    found = rates(replace(MODERN, epochs=epochs, rate_warm_up=warm_up, peak_rate=peak), per_epoch)
    rising = warm_up * per_epoch
    assert found.shape == (epochs * per_epoch,)
    assert found.min() > 0
    assert found.max() == found[rising] == peak
    assert torch.allclose(found[:rising], peak * torch.arange(1.0, rising + 1, dtype=torch.float64) / max(rising, 1))
    assert (found[rising:].diff() < 0).all()


def test_cosine_without_warm_up_is_pytorchs() -> None:
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=MODERN.peak_rate)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
    found = rates(replace(MODERN, epochs=20, rate_warm_up=0), steps_per_epoch=3)
    for rate in found.tolist():
        # PyTorch updates its rate recursively and loses digits as it nears zero
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-15)
        optimizer.step()
        reference.step()


@given(lengths(least=0, short=1), st.floats(0, 0.999), steps)
def test_a_held_cosine_is_a_cosine_that_stays_where_averaging_begins(
    epochs_and_warm_up: tuple[int, int], share: float, per_epoch: int
) -> None:
    epochs, warm_up = epochs_and_warm_up
    share = max(share, warm_up / epochs)
    recipe = replace(MODERN, epochs=epochs, rate_warm_up=warm_up, average="swa", swa_start=share)
    falling, held = rates(recipe, per_epoch), rates(replace(recipe, schedule="held-cosine"), per_epoch)
    begins = int(share * epochs * per_epoch)
    assert torch.equal(held[:begins], falling[:begins])
    assert held[begins:].unique().tolist() == [falling[begins].item()]


def test_a_cosine_held_at_half_of_the_steps_is_held_at_half_of_its_peak() -> None:
    recipe = replace(MODERN, epochs=10, rate_warm_up=0, schedule="held-cosine", average="swa", swa_start=0.5)
    assert rates(recipe, 4)[20:].tolist() == pytest.approx([MODERN.peak_rate / 2] * 20, rel=1e-12)


def test_an_epoch_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="steps_per_epoch must be at least 1, got 0"):
        rates(PAPER, 0)
