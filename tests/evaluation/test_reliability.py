from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random

import mpmath
import pytest
import sklearn.metrics as oracle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsui.evaluation.reliability import (
    ReliabilityBins,
    adaptive_ece,
    calibration_metrics,
    ece,
    reliability_bins,
    stated_metrics,
)

ROUNDING = 1e-12
"""A few float64 operations per sample of at most a few hundred samples, each figure of order 1."""


def nll(logits: Tensor, labels: Tensor) -> float:
    return calibration_metrics(logits, labels)["nll"]


def brier(logits: Tensor, labels: Tensor) -> float:
    return calibration_metrics(logits, labels)["brier"]


def problem(samples: int, classes: int) -> tuple[Tensor, Tensor]:
    """Labels drawn from the softmax: bins err to both sides, so that calibration errors depend on the bins."""
    generator = torch.Generator().manual_seed(samples + classes)
    logits = 3 * torch.randn(samples, classes, dtype=torch.float64, generator=generator)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


def confidences(samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    confidence = torch.rand(samples, dtype=torch.float64, generator=generator)
    return confidence, torch.rand(samples, generator=generator) < confidence**2


@pytest.mark.parametrize("classes", [2, 10])
def test_accuracy_nll_and_brier_equal_their_oracles(classes: int) -> None:
    logits, labels = problem(300, classes)
    p = logits.softmax(1)
    assert calibration_metrics(logits, labels)["accuracy"] == oracle.accuracy_score(labels, p.argmax(1))
    assert nll(logits, labels) == pytest.approx(oracle.log_loss(labels, p), abs=ROUNDING)
    one_against_rest = [oracle.brier_score_loss(labels == c, p[:, c]) for c in range(classes)]
    assert brier(logits, labels) == pytest.approx(sum(one_against_rest), abs=ROUNDING)


def test_nll_and_brier_keep_their_digits_when_the_softmax_saturates() -> None:
    for gap in (20, 300, 1e4):
        right, wrong = (torch.tensor([[gap, 0.0]]), torch.tensor([0])), (torch.tensor([[gap, 0.0]]), torch.tensor([1]))
        assert nll(*wrong) == pytest.approx(float(mpmath.log1p(mpmath.exp(gap))), rel=ROUNDING)
        assert brier(*wrong) == pytest.approx(2, rel=1e-8)  # e^-20 is what is left at the least gap
        # 1 + e^-20 holds eight digits of e^-20.
        assert nll(*right) == pytest.approx(float(mpmath.log1p(mpmath.exp(-gap))), rel=1e-7, abs=1e-16)


def test_half_precision_logits_are_computed_in_float64() -> None:
    logits, labels = problem(300, 10)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        rounded = logits.to(dtype)
        assert calibration_metrics(rounded, labels) == calibration_metrics(rounded.double(), labels)


def test_a_constant_added_to_a_samples_logits_changes_nothing() -> None:
    logits, labels = problem(300, 10)
    shifted = logits + 1e4 * torch.randn(300, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # Logits of 1e4 in float64 are rounded by about 1e-12.
    assert calibration_metrics(shifted, labels) == pytest.approx(calibration_metrics(logits, labels), abs=1e-10)


def test_logarithms_of_probabilities_serve_as_logits() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([1, 1])
    assert nll(p.log(), labels) == pytest.approx(-math.log(0.2) / 2, abs=ROUNDING)
    assert brier(p.log(), labels) == pytest.approx((0.49 + 0.64 + 0.01) / 2, abs=ROUNDING)
    assert nll(p.log(), torch.tensor([1, 0])) == math.inf


def by_hand(confidence: Tensor, correct: Tensor, bins: list[list[int]]) -> float:
    parts = [
        (float(confidence[i].sum()), float(correct[i].double().sum())) for i in map(torch.tensor, filter(len, bins))
    ]
    return sum(abs(sure - right) for sure, right in parts) / len(confidence)


@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("samples", [1, 5, 200])
def test_ece_is_the_mean_gap_over_bins_of_equal_width(samples: int, bins: int) -> None:
    confidence, correct = confidences(samples)
    members = [[i for i, c in enumerate(confidence.tolist()) if b < c * bins <= b + 1] for b in range(bins)]
    assert ece(confidence, correct, bins) == pytest.approx(by_hand(confidence, correct, members), abs=ROUNDING)
    assert reliability_bins(confidence, correct, bins).samples.tolist() == [len(m) for m in members]


@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("samples", [1, 5, 200])
def test_adaptive_ece_is_the_mean_gap_over_bins_of_equal_mass(samples: int, bins: int) -> None:
    confidence, correct = confidences(samples)
    order = confidence.argsort().tolist()
    cuts = [math.ceil(Fraction(b * samples, bins)) for b in range(bins + 1)]
    members = [order[start:end] for start, end in itertools.pairwise(cuts)]
    assert adaptive_ece(confidence, correct, bins) == pytest.approx(by_hand(confidence, correct, members), abs=ROUNDING)
    sizes = reliability_bins(confidence, correct, bins, equal_mass=True).samples
    assert sizes.tolist() == [len(m) for m in members]
    assert sizes.max() - sizes.min() <= 1


def test_an_edge_belongs_to_the_bin_below_it() -> None:
    """Every multiple of 1 / 100, as a decimal literal gives it; zero joins the first bin."""
    confidence = torch.tensor([float(f"0.{i:02}") for i in range(100)] + [1.0], dtype=torch.float64)
    assert reliability_bins(confidence, torch.zeros(101), 100).samples.tolist() == [2.0] + [1.0] * 99


def test_bins_hold_means_and_empty_ones_are_nan() -> None:
    found = reliability_bins(torch.tensor([0.6, 0.7, 0.9]).double(), torch.tensor([True, False, True]), 4)
    expected = ReliabilityBins(
        torch.tensor([0.0, 0, 2, 1]),
        torch.tensor([math.nan, math.nan, 0.65, 0.9]),
        torch.tensor([math.nan] * 2 + [0.5, 1]),
    )
    for part, truth in zip(found, expected, strict=True):
        assert part.tolist() == pytest.approx(truth.double().tolist(), abs=1e-7, nan_ok=True)  # float32 literals


def test_tied_confidences_share_their_hits_among_bins_of_equal_mass() -> None:
    """Four samples of confidence 0.5 in two bins, two of them right: each bin gets one, in whatever order."""
    for correct in itertools.permutations([True, True, False, False]):
        bins = reliability_bins(torch.full((4,), 0.5), torch.tensor(correct), 2, equal_mass=True)
        assert bins.accuracy.tolist() == [0.5, 0.5]


marked = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.25, 0.9, 1.0]), st.booleans()), min_size=1, max_size=60)


@settings(deadline=None)
@given(marked, st.integers(1, 20), st.randoms(use_true_random=False))
def test_calibration_errors_ignore_order_and_bound_the_overall_gap(
    rows: list[tuple[float, bool]], bins: int, random: Random
) -> None:
    confidence = torch.tensor([c for c, _ in rows], dtype=torch.float64)
    correct = torch.tensor([right for _, right in rows])
    shuffle = torch.tensor(random.sample(range(len(rows)), len(rows)))
    gap = abs(float(confidence.mean() - correct.double().mean()))
    for figure in (ece, adaptive_ece):
        value = figure(confidence, correct, bins)
        assert value == pytest.approx(figure(confidence[shuffle], correct[shuffle], bins), abs=ROUNDING)
        assert gap - ROUNDING <= value <= 1 + ROUNDING
        assert figure(confidence, correct, 1) == pytest.approx(gap, abs=ROUNDING)


def test_the_calibration_error_of_honest_confidences_vanishes_and_of_boasting_is_the_boast() -> None:
    """Of 100 samples of confidence i / 100 exactly i are right."""
    confidence = (torch.arange(101, dtype=torch.float64) / 100).repeat_interleave(100)
    correct = torch.cat([torch.arange(100) < i for i in range(101)])
    boast = (confidence + 0.2).clamp(max=1)
    for figure in (ece, adaptive_ece):
        assert figure(confidence, correct) == pytest.approx(0, abs=ROUNDING)
        assert figure(boast, correct) == pytest.approx(float((boast - confidence).mean()), abs=ROUNDING)


def test_calibration_errors_of_logits_are_those_of_the_predicted_class() -> None:
    logits, labels = problem(300, 10)
    confidence, correct = logits.softmax(1).amax(1), logits.argmax(1) == labels
    found = calibration_metrics(logits, labels)
    assert found["ece"] == pytest.approx(ece(confidence, correct), abs=ROUNDING)
    assert found["adaptive_ece"] == pytest.approx(adaptive_ece(confidence, correct), abs=ROUNDING)


def test_a_temperature_scales_the_probabilities_and_leaves_accuracy_and_unscaled_figures() -> None:
    logits, labels = problem(300, 10)
    plain, found = stated_metrics(logits, labels), stated_metrics(logits, labels, 2.5)
    assert plain["confidence"] == pytest.approx(float(logits.softmax(1).amax(1).mean()), rel=1e-12)
    assert plain["majority"] == max(labels.tolist().count(label) for label in range(10)) / 300
    assert plain.items() <= found.items()
    assert found["temperature"] == 2.5
    scaled = calibration_metrics(logits / 2.5, labels)
    assert scaled["accuracy"] == calibration_metrics(logits, labels)["accuracy"]
    for name in ("nll", "brier", "ece", "adaptive_ece"):
        assert found[f"scaled_{name}"] == pytest.approx(scaled[name], rel=1e-12)
    assert found["scaled_confidence"] == pytest.approx(float((logits / 2.5).softmax(1).amax(1).mean()), rel=1e-12)


def test_figures_of_logits_in_training_need_no_detaching() -> None:
    logits, labels = problem(30, 3)
    assert calibration_metrics(logits.requires_grad_(), labels) == calibration_metrics(logits.detach(), labels)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.tensor([[0.0, math.nan], [0, 0]]), torch.tensor([0, 1]), "1 of 2 rows"),
        (torch.tensor([[0.0, math.inf], [0, 0]]), torch.tensor([0, 1]), "1 of 2 rows"),
        (torch.full((2, 2), -math.inf), torch.tensor([0, 1]), "2 of 2 rows"),
        (torch.zeros(0, 3), torch.zeros(0).long(), "at least one sample"),
        (torch.zeros(3), torch.zeros(3).long(), "at least one sample"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "labels run from 0 to 3"),
        (torch.zeros(2, 3), torch.tensor([0.0, 1.0]), "torch.int64"),
    ],
)
def test_bad_logits_and_labels_are_named(logits: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibration_metrics(logits, labels)


@pytest.mark.parametrize(
    ("confidence", "correct", "bins", "message"),
    [
        (torch.tensor([0.5, math.nan]), torch.ones(2), 15, "1 of 2 scores are NaN"),
        (torch.tensor([0.5, 1.5]), torch.ones(2), 15, "between 0 and 1"),
        (torch.tensor([0.5, -0.5]), torch.ones(2), 15, "between 0 and 1"),
        (torch.zeros(0), torch.zeros(0), 15, "no scores"),
        (torch.zeros(2), torch.zeros(3), 15, "two vectors"),
        (torch.zeros(2), torch.tensor([0, 7]), 15, "true or false"),
        (torch.zeros(2), torch.zeros(2), 0, "bins must be at least 1"),
    ],
)
def test_bad_confidences_are_named(confidence: Tensor, correct: Tensor, bins: int, message: str) -> None:
    for figure in (ece, adaptive_ece):
        with pytest.raises(ValueError, match=message):
            figure(confidence, correct, bins)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_calibration_of_the_cpu_in_deterministic_mode() -> None:
    logits, labels = problem(5000, 10)
    torch.use_deterministic_algorithms(True)
    try:
        # The GPU adds in another order.
        found = calibration_metrics(logits.cuda(), labels.cuda())
        assert found == pytest.approx(calibration_metrics(logits, labels), abs=ROUNDING)
    finally:
        torch.use_deterministic_algorithms(False)
