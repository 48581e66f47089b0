from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from dsui.evaluation.metrics import aupr, aurc, auroc

samples = st.lists(
    st.tuples(st.sampled_from([-1e4, -3.0, 0.0, 0.5, 1e4, 1e4 + 1e-3]), st.booleans()), min_size=2, max_size=60
).filter(lambda rows: 0 < sum(mark for _, mark in rows) < len(rows))


def tensors(rows: list[tuple[float, bool]]) -> tuple[Tensor, Tensor]:
    return torch.tensor([s for s, _ in rows], dtype=torch.float64), torch.tensor([m for _, m in rows])


@settings(deadline=None)
@given(samples)
def test_auroc_and_aupr_equal_scikit_learn_on_tied_and_large_scores(rows: list[tuple[float, bool]]) -> None:
    scores, marks = tensors(rows)
    assert auroc(scores, marks) == pytest.approx(roc_auc_score(marks, scores), abs=1e-12)
    assert aupr(scores, marks) == pytest.approx(average_precision_score(marks, scores), abs=1e-12)


@settings(deadline=None)
@given(samples)
def test_figures_ignore_order_and_monotone_transforms(rows: list[tuple[float, bool]]) -> None:
    scores, marks = tensors(rows)
    shuffle = torch.randperm(len(scores))
    for metric in (auroc, aupr, aurc):
        assert metric(scores, marks) == pytest.approx(metric(scores[shuffle], marks[shuffle]), abs=1e-12)
        assert metric(scores, marks) == pytest.approx(metric(torch.asinh(scores), marks), abs=1e-12)


def test_aurc_is_the_mean_selective_risk() -> None:
    torch.manual_seed(0)
    scores, errors = torch.randn(200, dtype=torch.float64), torch.rand(200) < 0.2
    kept = errors[scores.argsort()].double()
    risks = kept.cumsum(0) / torch.arange(1, 201)
    assert aurc(scores, errors) == pytest.approx(float(risks.mean()), abs=1e-12)


def test_aurc_of_tied_scores_is_that_of_a_random_order() -> None:
    errors = torch.tensor([True, False, False, True, False])
    assert aurc(torch.zeros(5), errors) == pytest.approx(2 / 5)
    torch.manual_seed(0)
    scores = torch.tensor([0.0, 0, 0, 1, 1])
    broken = [aurc(scores + 1e-3 * torch.rand(5), errors) for _ in range(4000)]
    spread = float(torch.tensor(broken).std()) / math.sqrt(4000)
    assert aurc(scores, errors) == pytest.approx(sum(broken) / 4000, abs=4 * spread)


def test_one_kind_of_sample_only_is_nan_where_the_two_are_compared() -> None:
    scores = torch.tensor([0.0, 1.0, 2.0])
    for marks in (torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)):
        assert math.isnan(auroc(scores, marks))
        assert math.isnan(aupr(scores, marks))
    assert aurc(scores, torch.zeros(3, dtype=torch.bool)) == 0
    assert aurc(scores, torch.ones(3, dtype=torch.bool)) == pytest.approx(1)


def test_bad_scores_are_named() -> None:
    marks = torch.tensor([True, False])
    for scores, message in (
        (torch.tensor([0.0, math.nan]), "1 of 2 scores are NaN"),
        (torch.tensor([0.0]), "two vectors of one length"),
        (torch.zeros(2, 1), "two vectors of one length"),
    ):
        with pytest.raises(ValueError, match=message):
            auroc(scores, marks)
    with pytest.raises(ValueError, match="no scores to rank"):
        aurc(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
