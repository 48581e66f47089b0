from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from dsui.evaluation.metrics import aupr, auroc
from dsui.evaluation.statistics import (
    ALIKE,
    DIFFERENT,
    UNTESTED,
    Metric,
    Summary,
    holm,
    mark,
    mean_ranks,
    obstacle,
    paired_bootstrap,
    summarize,
    t_test,
)

runs = st.lists(st.floats(0, 1).map(lambda value: round(value, 6)), min_size=2, max_size=8)


@pytest.mark.filterwarnings("ignore:Precision loss")  # of scipy, where one of the two does not deviate
@settings(deadline=None, max_examples=50)
@given(runs, runs)
def test_tests_from_mean_deviation_and_n_equal_scipy_on_the_samples(first: list[float], second: list[float]) -> None:
    if len(set(first)) == len(set(second)) == 1:
        return  # scipy divides by zero here; see the next test
    for equal in (True, False):
        p = t_test(summarize(first), summarize(second), equal_variances=equal)
        # deviations of 1e-6 around 1 leave scipy's own sums of squares some ten digits
        assert p == pytest.approx(stats.ttest_ind(first, second, equal_var=equal).pvalue, rel=1e-6, abs=1e-9)


def test_runs_that_all_agree_differ_only_if_their_means_do() -> None:
    three, five = summarize([0.1] * 3), summarize([0.1] * 5)  # sums of 0.1 that are rounded at every step would differ
    assert three.deviation == five.deviation == 0
    for equal in (True, False):
        assert t_test(three, five, equal) == 1
        assert t_test(three, summarize([0.1 + 1e-9] * 3), equal) == 0


def test_deviation_divides_by_n_minus_one_and_one_run_has_none() -> None:
    assert summarize([0.0, 1.0]) == Summary(0.5, math.sqrt(0.5), 2)
    assert summarize([0.3]) == Summary(0.3, None, 1)
    for values, message in (([], "at least 1"), ([0.5, math.nan], "1 of 2 runs")):
        with pytest.raises(ValueError, match=message):
            summarize(values)


def test_marks_are_named_and_a_test_that_cannot_be_made_says_why() -> None:
    known = Summary(0.9, 0.01, 5)
    for other, why in (
        (Summary(0.8, None, 1), "fewer than two runs"),
        (Summary(0.8, 0.01, 1), "fewer than two runs"),
        (Summary(0.8, None, 5), "no deviation"),
    ):
        for pair in ((known, other), (other, known)):
            assert obstacle(*pair) == why
            assert mark(t_test(*pair)) == UNTESTED == "n/a"
    assert obstacle(known, known) is None
    assert mark(t_test(known, known)) == ALIKE == "\u00d7"
    assert mark(t_test(known, Summary(0.8, 0.01, 5))) == DIFFERENT == "\u2713"
    assert (mark(0.0499), mark(0.05), mark(0.02, level=0.01)) == (DIFFERENT, ALIKE, ALIKE)


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 times 4 3 2 1 = .02 .03 .06 .04; the last is raised to .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_holm_does_not_count_tests_that_were_not_made() -> None:
    adjusted = holm([0.01, math.nan, 0.04])
    assert math.isnan(adjusted[1])
    assert [adjusted[0], adjusted[2]] == pytest.approx([0.02, 0.04])


def test_mean_rank_shares_ties_follows_direction_and_skips_incomplete_columns() -> None:
    figures = {"a": [0.9, 0.1, 0.5], "b": [0.9, 0.3, math.nan], "c": [0.8, 0.2, 0.6]}
    assert mean_ranks(figures, [True, False, True]) == {"a": 1.25, "b": 2.25, "c": 2.5}
    assert all(map(math.isnan, mean_ranks({"a": [math.nan], "b": [1.0]}, [True]).values()))


def models(samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Marks and two correlated scores of unequal quality; one decimal makes ties."""
    rng = np.random.default_rng(seed)
    positive = rng.random(samples) < 0.4
    shared = rng.normal(size=samples)
    good, poor = (shared + rng.normal(size=samples) + shift * positive for shift in (1.5, 0.9))
    return torch.tensor(positive), torch.tensor(good.round(1)), torch.tensor(poor.round(1))


@pytest.mark.parametrize(("metric", "oracle"), [(auroc, roc_auc_score), (aupr, average_precision_score)])
def test_counting_and_resampling_give_the_same_bootstrap(
    metric: Metric, oracle: Callable[[Tensor, Tensor], float]
) -> None:
    positive, good, poor = models(60, 0)
    quick = paired_bootstrap(metric, (good, positive), (poor, positive), resamples=100, seed=3)
    slow = paired_bootstrap(lambda s, p: oracle(p, s), (good, positive), (poor, positive), resamples=100, seed=3)
    # the same draws, so only the last digits of two float64 sums differ
    assert (quick.value, quick.low, quick.high) == pytest.approx((slow.value, slow.low, slow.high), abs=1e-12)
    assert quick.p == slow.p


@pytest.mark.parametrize("metric", [auroc, aupr, lambda scores, positive: float(scores[positive].mean())])
def test_identical_models_do_not_differ(metric: Metric) -> None:
    positive, good, _ = models(80, 1)
    same = paired_bootstrap(metric, (good, positive), (good.clone(), positive), resamples=50)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_bootstrap_interval_holds_the_truth_at_about_its_nominal_rate() -> None:
    # shared + own noise: scores of a class have variance 2, so AUROC is Phi(shift / 2)
    truth = float(stats.norm.cdf(1.5 / 2) - stats.norm.cdf(0.9 / 2))
    inside = []
    for seed in range(300):
        positive, good, poor = models(150, seed)
        found = paired_bootstrap(auroc, (good, positive), (poor, positive), resamples=200, confidence=0.9, seed=seed)
        inside.append(found.low <= truth <= found.high)
    # 300 trials have a standard error of 0.017; the percentile interval is known to be a little narrow at n = 150
    assert 0.84 < statistics.mean(inside) < 0.95


def test_bootstrap_p_is_small_for_a_clear_difference_and_changes_side_with_the_order() -> None:
    positive, good, poor = models(1500, 2)
    ahead = paired_bootstrap(auroc, (good, positive), (poor, positive))
    behind = paired_bootstrap(auroc, (poor, positive), (good, positive))
    assert ahead.p == 2 / 1001  # no resample of 1000 lies below zero, the images as they are count as one more
    assert 0 < ahead.low < ahead.value < ahead.high
    assert (behind.value, behind.low, behind.high) == pytest.approx((-ahead.value, -ahead.high, -ahead.low), abs=1e-12)


def test_bootstrap_is_seeded_and_pairs_images_of_models_with_different_errors() -> None:
    positive, good, poor = models(200, 3)
    errors = positive.roll(1)
    first = paired_bootstrap(auroc, (good, positive), (poor, errors), resamples=50, seed=1)
    assert first == paired_bootstrap(auroc, (good, positive), (poor, errors), resamples=50, seed=1)
    assert first != paired_bootstrap(auroc, (good, positive), (poor, errors), resamples=50, seed=2)
    assert first.value == auroc(good, positive) - auroc(poor, errors)
    near = paired_bootstrap(auroc, (good, positive), (good + 1e-3 * poor, positive), resamples=200)
    assert near.high - near.low < 0.02  # the common luck of two nearly equal scores cancels


def _generic(metric: Metric) -> Metric:
    """The metric under another name, for which there is no short cut."""
    return partial(metric)


def test_resamples_without_a_positive_are_left_out_and_no_figure_at_all_is_nan() -> None:
    scores, positive = torch.arange(6.0), torch.tensor([0, 0, 0, 0, 0, 1]).bool()
    rare = paired_bootstrap(auroc, (scores, positive), (-scores, positive), resamples=200)
    assert (rare.value, rare.low, rare.high) == (1, 1, 1)
    for metric in (auroc, aupr):  # one kind of sample is missing in many of these draws
        for marks in (positive, ~positive):
            quick = paired_bootstrap(metric, (scores, marks), (scores.flip(0), marks), resamples=100)
            drawn = paired_bootstrap(_generic(metric), (scores, marks), (scores.flip(0), marks), resamples=100)
            # the same draws, so only the last digits of two float64 sums differ
            assert (quick.low, quick.high, quick.p) == pytest.approx((drawn.low, drawn.high, drawn.p), abs=1e-12)
    none = paired_bootstrap(auroc, (scores, positive & False), (scores, positive & False), resamples=5)
    assert all(map(math.isnan, (none.value, none.low, none.high, none.p)))


def test_bad_bootstrap_settings_are_named() -> None:
    positive, good, poor = models(10, 4)
    with pytest.raises(ValueError, match="10 and 9 images"):
        paired_bootstrap(auroc, (good, positive), (poor[1:], positive[1:]))
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1, got 95"):
        paired_bootstrap(auroc, (good, positive), (poor, positive), confidence=95)
    with pytest.raises(ValueError, match="resamples must be at least 1"):
        paired_bootstrap(auroc, (good, positive), (poor, positive), resamples=0)
