"""The bet on the rate of acceptance: fair under Polya's urn, with an alarm where the rate moves."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from dsui.monitoring import AcceptanceMonitor
from dsui.monitoring.urn import UrnMartingale

ALARM = math.log(100)


def urn_chance(pattern: tuple[bool, ...], rank: int, images: int) -> float:
    """The integral of p^s (1 - p)^(t - s) over Beta(k, n + 1 - k), in whole numbers."""
    accepted, rejected = sum(pattern), len(pattern) - sum(pattern)
    top = math.prod(range(rank, rank + accepted)) * math.prod(range(images + 1 - rank, images + 1 - rank + rejected))
    return top / math.prod(range(images + 1, images + 1 + len(pattern)))


@pytest.mark.parametrize(("rank", "images"), [(1, 1), (10, 10), (18, 19), (286, 300)])
def test_wealth_is_one_on_average_over_all_streams(rank: int, images: int) -> None:
    length, mean, total = 9, 0.0, 0.0
    for pattern in itertools.product([False, True], repeat=length):
        urn = UrnMartingale([rank], images)
        for each in pattern:
            wealth = float(urn.update(np.array([each])))
        mean += urn_chance(pattern, rank, images) * math.exp(wealth)
        total += urn_chance(pattern, rank, images)
    assert total == pytest.approx(1, abs=1e-12)
    assert mean == pytest.approx(1, abs=1e-10)  # of 512 sums in float64


def highest(rates: np.ndarray, urn: UrnMartingale, steps: int) -> np.ndarray:
    """[streams] the largest wealth of streams that accept at their own rates."""
    generator, top = np.random.default_rng(1), np.zeros(len(rates))
    for _ in range(steps):
        top = np.maximum(top, urn.update((generator.random(len(rates)) < rates)[:, None]))
    return top


@pytest.mark.parametrize(("images", "rank"), [(300, 286), (19, 19), (1000, 801)])
def test_lucky_and_unlucky_calibrations_raise_no_more_false_alarms_than_stated(images: int, rank: int) -> None:
    streams = 2000
    rates = np.random.default_rng(0).beta(rank, images + 1 - rank, streams)
    top = highest(rates, UrnMartingale([rank], images, shape=(streams,)), 1000)
    for chance in (0.1, 0.01):
        limit = chance + 3 * math.sqrt(chance * (1 - chance) / streams)  # three deviations
        assert (top >= -math.log(chance)).mean() <= limit


def test_a_test_of_the_exact_rate_would_raise_many() -> None:
    """Why the urn: the true rate is not 0.95, it varies with the calibration images."""
    rates = np.random.default_rng(0).beta(286, 15, 500)
    naive = highest(rates, UrnMartingale(rates=[0.95], shape=(500,)), 3000)
    assert (naive >= ALARM).mean() > 0.2  # 29 % when written, of 2000 streams
    exact = highest(rates, UrnMartingale([286], 300, shape=(500,)), 3000)
    assert (exact >= ALARM).mean() <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 500)


@pytest.mark.parametrize(("before", "after"), [(0, 100), (1000, 200)])
def test_three_foreign_images_in_ten_are_noticed_within(before: int, after: int) -> None:
    generator = np.random.default_rng(2)
    for _ in range(20):
        monitor = AcceptanceMonitor(0.95, 300)
        rate = generator.beta(286, 15)
        assert not monitor.update(generator.random(before) < rate)
        assert monitor.update(generator.random(after) < 0.7 * rate + 0.3 * 0.1)
        assert monitor.since is not None
        assert before < monitor.since <= before + after


def test_more_acceptance_than_promised_is_noticed_as_well() -> None:
    assert AcceptanceMonitor(0.8, 1000).update(np.ones(200, bool))


def test_an_alarm_stays_and_tells_when() -> None:
    monitor = AcceptanceMonitor(0.95, 300)
    assert (monitor.value, monitor.alarm, monitor.sentence) == (1, False, "No image has been decided on yet.")
    while not monitor.update(False):
        pass
    first = monitor.since
    assert first == monitor.observations == 4  # three have a chance of 1 in 6,751, less the price of bets
    monitor.update(np.ones(300, bool))
    assert (monitor.alarm, monitor.since) == (True, first)
    assert monitor.log_value <= monitor.highest
    assert monitor.sentence.startswith("Alarm at image 4: 98.7% of 304 images accepted, 95.0% promised; images like")
    told = json.loads(json.dumps(monitor.to_mapping()))
    assert (told["since"], told["observations"], told["accepted"]) == (4, 304, 300)
    assert told["chance"] <= 0.01


def test_one_at_a_time_is_the_same_as_all_at_once() -> None:
    decisions = np.random.default_rng(3).random(200) < 0.9
    one, all_at_once = AcceptanceMonitor(0.9, 100), AcceptanceMonitor(0.9, 100)
    for each in decisions:
        one.update(bool(each))
    all_at_once.update(decisions)
    assert one.to_mapping() == all_at_once.to_mapping()


def test_a_rank_chosen_among_several_has_that_much_less_wealth() -> None:
    alone, chosen = AcceptanceMonitor.at_rank(286, 300), AcceptanceMonitor.at_rank(286, 300, choices=20)
    for monitor in (alone, chosen):
        monitor.update([True, False, False])
    assert chosen.log_value == pytest.approx(alone.log_value - math.log(20))
    same = AcceptanceMonitor(0.95, 300)
    same.update([True, False, False])
    assert same.log_value == alone.log_value


def test_a_very_long_stream_stays_finite() -> None:
    monitor = AcceptanceMonitor(0.99, None)
    monitor.update(np.zeros(3000, bool))
    assert math.isfinite(monitor.value)
    assert monitor.log_value > 3000


@pytest.mark.parametrize("promised", [0.0, 1.0, math.nan, -1.0])
def test_what_is_no_rate_is_refused(promised: float) -> None:
    with pytest.raises(ValueError, match="promised rate must be between 0 and 1"):
        AcceptanceMonitor(promised, 300)
    with pytest.raises(ValueError, match="chance of a false alarm must be between 0 and 1"):
        AcceptanceMonitor(0.9, 300, false_alarm=promised)


def test_too_few_calibration_images_are_refused() -> None:
    with pytest.raises(ValueError, match="ranks must lie between 1 and the 10 calibration images"):
        AcceptanceMonitor(0.95, 10)
