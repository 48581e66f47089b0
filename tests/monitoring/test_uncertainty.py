"""The bets on the distribution of scores: fair for every order of scores, also of equal ones."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from dsui.monitoring import UncertaintyMonitor
from dsui.monitoring.uncertainty import PERCENTS, order_statistics


def test_wealth_is_one_on_average_over_all_orders_of_scores() -> None:
    """Ten calibration scores and three new ones: each of 11 x 12 x 13 places has the same chance."""
    calibration, total = np.arange(1.0, 11.0), 0.0
    for places in itertools.product(range(11), range(12), range(13)):
        known, monitor = list(calibration), UncertaintyMonitor(calibration)
        for place in places:
            edges = [known[0] - 1, *known, known[-1] + 1]
            new = (edges[place] + edges[place + 1]) / 2
            known.insert(place, new)
            monitor.update(new)
        total += monitor.value
    assert total / (11 * 12 * 13) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("digits", [None, 0])
def test_false_alarms_are_as_rare_as_stated_also_among_equal_scores(digits: int | None) -> None:
    generator, streams, alarms = np.random.default_rng(0), 300, 0
    for _ in range(streams):
        scores = generator.normal(size=100 + 300)
        scores = scores if digits is None else scores.round(digits)  # seven values or so
        alarms += UncertaintyMonitor(scores[:100], false_alarm=0.1).update(scores[100:])
    assert alarms / streams <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / streams)  # three deviations


def test_equal_scores_cost_no_power_where_their_number_grows() -> None:
    calibration = np.repeat([0.0, 1.0], 100)
    assert UncertaintyMonitor(calibration).update(np.ones(60))


def test_a_stream_in_order_of_its_scores_is_a_change() -> None:
    scores = np.random.default_rng(5).normal(size=600)
    assert not UncertaintyMonitor(scores[:300]).update(scores[300:])
    assert UncertaintyMonitor(scores[:300]).update(np.sort(scores[300:]))


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_move_up_or_down_are_noticed(sign: int) -> None:
    generator = np.random.default_rng(1)
    monitor = UncertaintyMonitor(generator.normal(size=300))
    assert not monitor.update(generator.normal(size=500))
    assert monitor.update(generator.normal(size=200) + 1.5 * sign)
    assert monitor.since is not None
    assert monitor.since > 500


def test_a_wider_spread_with_the_same_middle_is_noticed() -> None:
    generator = np.random.default_rng(2)
    assert UncertaintyMonitor(generator.normal(size=300)).update(3 * generator.normal(size=100))


def test_quantiles_that_are_order_statistics_give_the_same_as_all_scores() -> None:
    generator = np.random.default_rng(3)
    scores, new = generator.normal(size=437), generator.normal(size=200) + 0.3
    quantiles = order_statistics(scores)
    assert quantiles == pytest.approx(np.quantile(scores, np.linspace(0, 1, 101), method="inverted_cdf"), abs=0)
    whole, coarse = UncertaintyMonitor(scores), UncertaintyMonitor.of_quantiles(quantiles, 437)
    whole.update(new)
    coarse.update(new)
    assert {PERCENTS[-1], PERCENTS[0]} == {100, 1}
    assert coarse.log_value == pytest.approx(whole.log_value, abs=1e-12)


def test_what_is_not_a_number_is_larger_than_all() -> None:
    calibration = np.random.default_rng(4).normal(size=100)
    strange, large = UncertaintyMonitor(calibration), UncertaintyMonitor(calibration)
    strange.update([math.nan, 0.0, math.inf])
    large.update([1e9, 0.0, 1e9])
    assert strange.log_value == large.log_value


def test_streams_repeat_to_the_bit_and_one_at_a_time_is_all_at_once() -> None:
    calibration, new = np.repeat(np.arange(20.0), 5), np.tile(np.arange(20.0), 3)
    one, other = UncertaintyMonitor(calibration), UncertaintyMonitor(calibration)
    one.update(new)
    for value in new:
        other.update(float(value))
    assert json.dumps(one.to_mapping()) == json.dumps(other.to_mapping())
    assert one.sentence == "No alarm: uncertainty of 60 images is spread as calibration allows."


@pytest.mark.parametrize("scores", [np.arange(9.0), np.array([math.nan] * 20), np.zeros(0)])
def test_too_few_scores_and_scores_that_are_none_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite scores of at least 10 calibration images"):
        UncertaintyMonitor(scores)


def test_quantiles_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="101 numbers in ascending order"):
        UncertaintyMonitor.of_quantiles(np.arange(101.0)[::-1], 300)
