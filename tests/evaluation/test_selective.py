from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsui.evaluation.metrics import auroc
from dsui.evaluation.selective import (
    COVERAGES,
    augrc,
    aurc,
    e_aurc,
    risk_coverage_curve,
    selective_metrics,
    selective_risk,
)

Rows = list[tuple[float, bool]]

ROUNDING = 1e-12
"""A few float64 operations per sample of at most a few hundred samples, each figure at most 1."""

values = st.sampled_from([-math.inf, -1.0, 0.0, 1e4, 1e4 + 1e-9, math.inf])
samples = st.lists(st.tuples(values, st.booleans()), min_size=1, max_size=90)
few_samples = st.lists(st.tuples(st.sampled_from([-math.inf, 0.0, 1e4]), st.booleans()), min_size=1, max_size=5)


def tensors(rows: Rows) -> tuple[Tensor, Tensor]:
    return torch.tensor([s for s, _ in rows], dtype=torch.float64), torch.tensor([e for _, e in rows])


def kept_errors(rows: Rows) -> list[Fraction]:
    """E_0..E_n: errors among the k most certain, averaged over every order of the samples that respects the scores."""
    orders = [sorted(order, key=lambda row: row[0]) for order in itertools.permutations(rows)]
    return [Fraction(sum(sum(e for _, e in order[:k]) for order in orders), len(orders)) for k in range(len(rows) + 1)]


@settings(deadline=None, max_examples=60)
@given(few_samples)
def test_tied_scores_give_the_mean_over_all_their_orders(rows: Rows) -> None:
    errors, n = kept_errors(rows), len(rows)
    risks = [errors[k] / k for k in range(1, n + 1)]
    coverage, risk = risk_coverage_curve(*tensors(rows))
    assert coverage.tolist() == [k / n for k in range(1, n + 1)]
    assert risk.tolist() == pytest.approx([float(r) for r in risks], abs=ROUNDING)
    assert aurc(*tensors(rows)) == pytest.approx(float(sum(risks) / n), abs=ROUNDING)
    area = sum((errors[k] + errors[k + 1]) / 2 for k in range(n)) / n**2
    assert augrc(*tensors(rows)) == pytest.approx(float(area), abs=ROUNDING)


def test_without_ties_the_curve_is_the_running_error_rate() -> None:
    torch.manual_seed(0)
    scores, errors = torch.randn(500, dtype=torch.float64), torch.rand(500) < 0.2
    kept = errors[scores.argsort()].double()
    risks = kept.cumsum(0) / torch.arange(1, 501)
    assert torch.equal(risk_coverage_curve(scores, errors)[1], risks)
    assert aurc(scores, errors) == pytest.approx(float(risks.mean()), abs=ROUNDING)


@settings(deadline=None)
@given(samples)
def test_augrc_follows_from_auroc_and_accuracy(rows: Rows) -> None:
    scores, errors = tensors(rows)
    a = 1 - float(errors.double().mean())
    missed = (1 - auroc(scores, errors)) * a * (1 - a) if 0 < a < 1 else 0.0
    assert augrc(scores, errors) == pytest.approx(missed + (1 - a) ** 2 / 2, abs=ROUNDING)


@pytest.mark.parametrize("rate", [0.02, 0.25, 0.9])
@pytest.mark.parametrize("n", [100, 2000, 40_000])
def test_a_perfect_ranking_tends_to_its_limit_from_above(rate: float, n: int) -> None:
    errors = torch.arange(n) >= round(n * (1 - rate))
    scores = torch.arange(n)
    limit = rate + (1 - rate) * math.log(1 - rate)
    # H_n - H_c falls short of ln(n / c) by 1 / 2c - 1 / 2n and smaller terms, c = (1 - rate) n: rate / 2n in all.
    assert 0 < e_aurc(scores, errors) < rate / n
    assert aurc(scores, errors) == pytest.approx(limit, abs=rate / n)
    assert augrc(scores, errors) == pytest.approx(rate**2 / 2, abs=ROUNDING)


@settings(deadline=None)
@given(samples)
def test_no_ranking_beats_the_limit(rows: Rows) -> None:
    scores, errors = tensors(rows)
    rate = float(errors.double().mean())
    assert e_aurc(scores, errors) >= -ROUNDING
    limit = rate + (1 - rate) * math.log(1 - rate) if rate < 1 else 1.0
    assert e_aurc(scores, errors) == pytest.approx(aurc(scores, errors) - limit, abs=ROUNDING)
    assert augrc(scores, errors) >= rate**2 / 2 - ROUNDING


def test_equal_scores_keep_the_error_rate_at_every_coverage() -> None:
    errors = torch.arange(7) < 2
    _, risk = risk_coverage_curve(torch.zeros(7), errors)
    assert risk.tolist() == pytest.approx([2 / 7] * 7, abs=ROUNDING)
    assert aurc(torch.zeros(7), errors) == pytest.approx(2 / 7, abs=ROUNDING)
    assert augrc(torch.zeros(7), errors) == pytest.approx(1 / 7, abs=ROUNDING)


@pytest.mark.parametrize("n", [1, 7, 100, 2003])
def test_selective_risk_keeps_the_fewest_samples_that_reach_the_coverage(n: int) -> None:
    torch.manual_seed(n)
    scores, errors = torch.randint(0, 5, (n,)), torch.rand(n) < 0.4
    risk = risk_coverage_curve(scores, errors)[1]
    for percent in range(1, 101):
        k = math.ceil(Fraction(percent * n, 100))
        assert selective_risk(scores, errors, percent / 100) == float(risk[k - 1])


def test_ties_at_the_boundary_of_a_coverage_are_shared() -> None:
    """Six kept of ten: four right ones, and two of a tied four of which one is wrong."""
    scores = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    errors = torch.tensor([0, 0, 0, 0, 0, 1, 0, 0, 1, 1])
    for order in (torch.arange(10), torch.arange(10).flip(0)):
        assert selective_risk(scores[order], errors[order], 0.6) == pytest.approx(0.5 / 6, abs=ROUNDING)


@settings(deadline=None)
@given(samples)
def test_all_selective_figures_together_are_the_single_ones(rows: Rows) -> None:
    scores, errors = tensors(rows)
    assert selective_metrics(scores, errors) == {
        "aurc": aurc(scores, errors),
        "e_aurc": e_aurc(scores, errors),
        "augrc": augrc(scores, errors),
        **{f"risk_at_{share:.0%}".rstrip("%"): selective_risk(scores, errors, share) for share in COVERAGES},
    }


def test_all_right_or_all_wrong_has_no_nan() -> None:
    scores = torch.tensor([0.0, 1.0, 1.0])
    assert list(selective_metrics(scores, torch.zeros(3)).values()) == [0, 0, 0, 0, 0, 0]
    assert list(selective_metrics(scores, torch.ones(3)).values()) == [1, 0, 0.5, 1, 1, 1]


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.01, 95, math.nan])
def test_an_impossible_coverage_is_named(coverage: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        selective_risk(torch.zeros(3), torch.zeros(3), coverage)
