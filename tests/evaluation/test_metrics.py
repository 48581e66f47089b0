from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from random import Random

import pytest
import sklearn.metrics as oracle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from torch import Tensor

from dsui.evaluation.metrics import (
    aupr,
    aupr_in,
    aupr_trapezoid,
    aurc,
    auroc,
    false_alarms95,
    fpr95,
    precision_recall_curve,
    ranking_metrics,
    roc_curve,
    selective_metrics,
    ties,
)

Rows = list[tuple[float, bool]]

ROUNDING = 1e-12
"""A few float64 operations per sample of at most a hundred samples, each figure at most 1."""

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]

FIGURES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "auroc": auroc,
    "aupr": aupr,
    "aupr_in": aupr_in,
    "aupr_trapezoid": aupr_trapezoid,
    "fpr95": fpr95,
    "false_alarms95": false_alarms95,
}

values = st.sampled_from([-math.inf, -1e4, -3.0, -0.0, 0.0, 0.5, 1e4, 1e4 + 1e-9, math.inf])
both_kinds = st.lists(st.tuples(values, st.booleans()), min_size=2, max_size=90).filter(
    lambda rows: 0 < sum(mark for _, mark in rows) < len(rows)
)


def tensors(rows: Rows) -> tuple[Tensor, Tensor]:
    return torch.tensor([s for s, _ in rows], dtype=torch.float64), torch.tensor([m for _, m in rows])


def places(scores: Tensor) -> Tensor:
    """The place of each score among the distinct ones: the same ranking in whole numbers, which scikit-learn takes."""
    return torch.from_numpy(rankdata(scores.numpy(), method="dense")).long()


@settings(deadline=None)
@given(both_kinds)
def test_areas_equal_scikit_learn_on_tied_large_and_infinite_scores(rows: Rows) -> None:
    scores, marks = tensors(rows)
    whole = places(scores)
    precision, recall, _ = oracle.precision_recall_curve(marks, whole)
    assert auroc(scores, marks) == pytest.approx(oracle.roc_auc_score(marks, whole), abs=ROUNDING)
    assert aupr(scores, marks) == pytest.approx(oracle.average_precision_score(marks, whole), abs=ROUNDING)
    assert aupr_in(scores, marks) == pytest.approx(oracle.average_precision_score(~marks, -whole), abs=ROUNDING)
    assert aupr_trapezoid(scores, marks) == pytest.approx(oracle.auc(recall, precision), abs=ROUNDING)


@settings(deadline=None)
@given(both_kinds)
def test_curves_equal_scikit_learn_point_by_point(rows: Rows) -> None:
    scores, marks = tensors(rows)
    false_positives, true_positives, _ = oracle.roc_curve(marks, places(scores), drop_intermediate=False)
    for found, expected in zip(roc_curve(scores, marks), (false_positives, true_positives), strict=True):
        torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=ROUNDING)
    precision, recall, _ = oracle.precision_recall_curve(marks, places(scores))
    for found, expected in zip(precision_recall_curve(scores, marks), (precision, recall), strict=True):
        torch.testing.assert_close(found.flip(0), torch.from_numpy(expected), rtol=0, atol=ROUNDING)


def share(kept: list[bool]) -> Fraction:
    return Fraction(sum(kept), len(kept))


@settings(deadline=None)
@given(both_kinds)
def test_fpr95_follows_its_definition_in_fractions(rows: Rows) -> None:
    inside, foreign = ([s for s, mark in rows if mark is kind] for kind in (False, True))
    levels = sorted({s for s, _ in rows})
    keep = next(t for t in levels if share([s <= t for s in inside]) >= Fraction(95, 100))
    catch = next(t for t in reversed(levels) if share([s >= t for s in foreign]) >= Fraction(95, 100))
    assert fpr95(*tensors(rows)) == float(share([s <= keep for s in foreign]))
    assert false_alarms95(*tensors(rows)) == float(share([s >= catch for s in inside]))


@settings(deadline=None)
@given(both_kinds)
def test_fpr95_is_the_first_point_of_scikit_learns_curve(rows: Rows) -> None:
    scores, marks = tensors(rows)
    for figure, kind, whole in ((fpr95, ~marks, -places(scores)), (false_alarms95, marks, places(scores))):
        false_positives, true_positives, _ = oracle.roc_curve(kind, whole, drop_intermediate=False)
        expected = false_positives[(true_positives >= 0.95).argmax()]
        assert figure(scores, marks) == pytest.approx(expected, abs=ROUNDING)


def test_fpr95_keeps_exactly_nineteen_in_twenty() -> None:
    """Of in-domain scores 0..99 the threshold is 94; the foreign samples up to it, tied ones too, are accepted."""
    scores = torch.cat([torch.arange(100), torch.tensor([93, 94, 94, 95])])
    marks = torch.arange(104) >= 100
    assert fpr95(scores, marks) == 0.75
    assert false_alarms95(scores, marks) == 0.07  # catching all four needs 93, and 93..99 go with them


@pytest.mark.parametrize("n", [1, 20, 999, 20_000])
def test_samples_alike_in_both_kinds_are_accepted_at_the_share_that_is_kept(n: int) -> None:
    scores, marks = torch.arange(n).repeat(2), torch.arange(2 * n) >= n
    assert fpr95(scores, marks) == false_alarms95(scores, marks) == math.ceil(Fraction(19 * n, 20)) / n


@settings(deadline=None)
@given(both_kinds, st.randoms(use_true_random=False))
def test_figures_ignore_order_and_increasing_transforms(rows: Rows, random: Random) -> None:
    """Counts of the steps are all that enters, so equality is exact."""
    scores, marks = tensors(rows)
    expected = ranking_metrics(scores, marks), selective_metrics(scores, marks)
    shuffle = torch.tensor(random.sample(range(len(rows)), len(rows)))
    for same in (scores, torch.asinh(scores), places(scores), places(scores).to(torch.uint8)):
        assert (ranking_metrics(same, marks), selective_metrics(same, marks)) == expected
        assert (ranking_metrics(same[shuffle], marks[shuffle]), selective_metrics(same[shuffle], marks[shuffle])) == (
            expected
        )


@settings(deadline=None)
@given(both_kinds)
def test_turning_scores_and_marks_swaps_the_conventions(rows: Rows) -> None:
    scores, marks = tensors(rows)
    assert aupr_in(scores, marks) == aupr(-scores, ~marks)
    assert false_alarms95(scores, marks) == fpr95(-scores, ~marks)
    assert auroc(scores, marks) == pytest.approx(auroc(-scores, ~marks), abs=ROUNDING)
    assert auroc(scores, marks) == pytest.approx(1 - auroc(-scores, marks), abs=ROUNDING)


@settings(deadline=None)
@given(both_kinds)
def test_all_figures_together_are_the_single_ones(rows: Rows) -> None:
    scores, marks = tensors(rows)
    single = {name: figure(scores, marks) for name, figure in FIGURES.items()}
    assert ranking_metrics(scores, marks) == single | {"ties": ties(scores)}


@pytest.mark.parametrize("device", DEVICES)
def test_a_perfect_ranking_is_exactly_perfect_and_its_reverse_exactly_wrong(device: str) -> None:
    marks = torch.arange(3001, device=device) >= 2000
    scores = torch.arange(3001, device=device) / 7
    assert list(ranking_metrics(scores, marks).values()) == [1, 1, 1, 1, 0, 0, 0]  # the last are the ties
    assert auroc(-scores, marks) == 0
    assert fpr95(-scores, marks) == 1
    assert false_alarms95(-scores, marks) == 1


def test_equal_scores_tell_nothing() -> None:
    scores, marks = torch.zeros(10), torch.arange(10) < 3
    assert auroc(scores, marks) == 0.5
    assert aupr(scores, marks) == pytest.approx(0.3, abs=ROUNDING)
    assert aupr_in(scores, marks) == pytest.approx(0.7, abs=ROUNDING)
    assert fpr95(scores, marks) == false_alarms95(scores, marks) == 1


def test_average_precision_and_trapezoid_agree_without_ties_and_part_with_them() -> None:
    torch.manual_seed(0)
    marks = torch.rand(5000) < 0.3
    scores = torch.randn(5000, dtype=torch.float64) + marks.double()
    # One trapezoid differs from its step by half a step of precision: about 1 / n in all.
    assert aupr(scores, marks) == pytest.approx(aupr_trapezoid(scores, marks), abs=1e-3)
    assert aupr_trapezoid(scores.round(), marks) > aupr(scores.round(), marks) + 0.01


def test_differences_that_float32_loses_are_ranked_in_float64() -> None:
    scores = 1e4 + 1e-9 * torch.arange(100, dtype=torch.float64)
    marks = torch.arange(100) >= 50
    assert auroc(scores, marks) == 1
    assert auroc(scores.float(), marks) == 0.5
    assert ties(scores) == 0
    assert ties(scores.float()) == 100


def test_whole_numbers_too_large_for_float64_are_ranked() -> None:
    assert auroc(torch.tensor([2**62 + 1, 2**62]), torch.tensor([True, False])) == 1


@given(st.lists(values, min_size=1, max_size=40))
def test_ties_counts_the_samples_that_share_a_score(scores: list[float]) -> None:
    expected = sum(count for count in Counter(scores).values() if count > 1)
    assert ties(torch.tensor(scores, dtype=torch.float64)) == expected


@pytest.mark.parametrize("mark", [False, True])
def test_one_kind_of_sample_only_is_nan_where_the_two_are_compared(mark: bool) -> None:
    scores, marks = torch.tensor([0.0, 1.0, 2.0]), torch.full((3,), mark)
    together = ranking_metrics(scores, marks)
    assert together.pop("ties") == 0
    assert all(math.isnan(figure) for figure in together.values())
    assert all(math.isnan(figure(scores, marks)) for figure in FIGURES.values())
    assert aurc(scores, marks) == mark


def test_marks_may_be_numbers() -> None:
    scores, marks = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, False, False])
    assert (
        ranking_metrics(scores, marks.float())
        == ranking_metrics(scores, marks.int())
        == (ranking_metrics(scores, marks))
    )


@pytest.mark.parametrize(
    ("scores", "marks", "message"),
    [
        (torch.tensor([0.0, math.nan]), torch.tensor([True, False]), "1 of 2 scores are NaN"),
        (torch.tensor([0.0]), torch.tensor([True, False]), "two vectors of one length"),
        (torch.zeros(2, 1), torch.zeros(2, 1), "two vectors of one length"),
        (torch.zeros(0), torch.zeros(0), "no scores to rank"),
        (torch.zeros(3), torch.tensor([0, 1, 2]), "true or false"),
        (torch.zeros(2), torch.tensor([0.0, math.nan]), "true or false"),
    ],
)
def test_bad_scores_and_marks_are_named(scores: Tensor, marks: Tensor, message: str) -> None:
    for figure in (ranking_metrics, selective_metrics, auroc, fpr95, aurc, roc_curve, precision_recall_curve):
        with pytest.raises(ValueError, match=message):
            figure(scores, marks)


def test_ties_of_bad_scores_are_named() -> None:
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        ties(torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match="no scores"):
        ties(torch.zeros(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_figures_of_the_cpu_in_deterministic_mode() -> None:
    torch.manual_seed(0)
    scores, marks = torch.randn(5000).mul(10).round(), torch.rand(5000) < 0.3
    torch.use_deterministic_algorithms(True)
    try:
        for metrics in (ranking_metrics, selective_metrics):
            # The GPU adds in another order.
            assert metrics(scores.cuda(), marks.cuda()) == pytest.approx(metrics(scores, marks), abs=ROUNDING)
    finally:
        torch.use_deterministic_algorithms(False)
