from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dsui.evaluation.statistics import (
    ALIKE,
    DIFFERENT,
    UNTESTED,
    Interval,
    Summary,
    difference_interval,
    holm,
    mark,
    mean_ranks,
    obstacle,
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


@pytest.mark.filterwarnings("ignore:Precision loss")  # of scipy, where one of the two does not deviate
@settings(deadline=None, max_examples=50)
@given(runs, runs, st.sampled_from([0.05, 0.1]))
def test_intervals_from_mean_deviation_and_n_equal_scipy_on_the_samples(
    first: list[float], second: list[float], level: float
) -> None:
    found = difference_interval(summarize(first), summarize(second), level)
    assert found is not None
    if len(set(first)) == len(set(second)) == 1:
        assert found == Interval(summarize(first).mean - summarize(second).mean, found.low)
        return
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(1 - level)
    assert found == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)  # as above


def test_welchs_test_and_interval_agree_and_a_single_run_has_no_interval() -> None:
    three, five = Summary(0.93, 0.002, 3), Summary(0.92, 0.01, 5)
    p = t_test(three, five, equal_variances=False)
    low, high = difference_interval(three, five, level=p) or (math.nan, math.nan)
    assert low == pytest.approx(0, abs=1e-12)  # at the level p the interval just reaches zero
    assert high == pytest.approx(0.02)
    assert difference_interval(three, Summary(0.9, None, 1)) is None
    assert difference_interval(three, Summary(0.9, None, 5)) is None


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
