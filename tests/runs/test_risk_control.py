"""What a threshold by risk promises, by simulation with scores of every kind, and its sequences against plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from dsui.errors import DsuiError
from dsui.runs.risk_control import (
    CONFIDENCE,
    allowed_errors,
    limit_at_risk,
    limits_at_risk,
    needed,
    starts_of,
)
from dsui.runs.threshold import at_risk

Chance = Callable[[NDArray[np.float64]], NDArray[np.float64]]
GRID = np.linspace(0, 1, 20_001)
NONE_WRONG = torch.zeros(1000, dtype=torch.bool)
THREE_DEVIATIONS = 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE))


def risks(chance: Chance) -> NDArray[np.float64]:
    """The risk among accepted images up to each point of the grid, for uncertainties that are uniform on [0, 1]."""
    middle = chance((GRID[1:] + GRID[:-1]) / 2)
    return np.concatenate([chance(GRID[:1]), middle.cumsum() / np.arange(1, len(GRID))])


def share_of_breaches(chance: Chance, count: int, risk: float, trials: int) -> tuple[float, float]:
    """How often the risk among accepted images is above `risk`, and how often there is a threshold at all."""
    generator, true = np.random.default_rng(0), risks(chance)
    breaches = found = 0
    for _ in range(trials):
        scores = generator.random(count)
        errors = generator.random(count) < chance(scores)
        try:
            limit = limit_at_risk(torch.from_numpy(scores), torch.from_numpy(errors), risk)
        except DsuiError:
            continue
        found += 1
        breaches += bool(np.interp(limit, GRID, true) > risk)
    return breaches / trials, found / trials


def steady(scale: float, exponent: float = 0.0) -> Chance:
    return lambda u: scale * u**exponent


def waves(period: float, risk: float) -> Chance:
    """Every stretch of one period is wrong with twice the risk in its first half, and never in its second."""
    return lambda u: np.where(u % period < period / 2, 2.002 * risk, 0.0)


def surely_wrong_at_first(share: float) -> Chance:
    """The most certain images are always wrong, all others never."""
    return lambda u: (u < share).astype(float)


def worse_again(risk: float) -> Chance:
    """Right in the middle; wrong far more often at both ends."""
    return lambda u: np.select([u < 0.1, u < 0.35, u < 0.4], [risk, 0.0, 8 * risk], 1.003 * risk)


@pytest.mark.parametrize(
    ("chance", "count", "risk"),
    [
        (steady(0.0501), 400, 0.05),  # says nothing and is just too often wrong: every threshold is a breach
        (steady(0.1001), 1500, 0.1),
        (steady(0.07, 0.2), 400, 0.05),
        (steady(0.6, 2.0), 400, 0.05),
        (steady(1.0, 3.0), 1000, 0.02),
        (waves(0.05, 0.05), 400, 0.05),
        (waves(0.01, 0.1), 400, 0.1),
        (waves(0.3, 0.05), 1000, 0.05),
        (surely_wrong_at_first(0.0501), 400, 0.05),
        (worse_again(0.05), 400, 0.05),
        (worse_again(0.1), 1000, 0.1),
    ],
)
def test_the_risk_is_kept_with_the_stated_confidence_whatever_the_score(
    chance: Chance, count: int, risk: float
) -> None:
    breached, _ = share_of_breaches(chance, count, risk, trials := 400)
    assert breached <= 1 - CONFIDENCE + THREE_DEVIATIONS / math.sqrt(trials)


def test_the_error_rate_of_the_calibration_images_would_break_it_far_more_often() -> None:
    """The largest threshold whose accepted calibration images are wrong in at most a share r."""
    generator, chance, broken = np.random.default_rng(0), waves(0.05, 0.05), 0
    true = risks(chance)
    for _ in range(200):
        scores = np.sort(generator.random(400))
        rate = (generator.random(400) < chance(scores)).cumsum() / np.arange(1, 401)
        holding = np.flatnonzero(rate <= 0.05)
        broken += len(holding) > 0 and np.interp(scores[holding[-1]], GRID, true) > 0.05
    assert broken / 200 > 0.2


@pytest.mark.parametrize("correlation", [0.0, 0.8, -0.9])
def test_the_risk_of_two_scores_is_kept_though_certain_images_are_wrong(correlation: float) -> None:
    """Wrong with chance 2.1 r if the first score is low and never else; of accepted images too many are wrong."""
    generator, risk, breaches, trials = np.random.default_rng(1), 0.1, 0, 300

    def draw(count: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        first, second = generator.normal(size=(2, count))
        second = correlation * first + math.sqrt(1 - correlation**2) * second
        return np.stack([first, second]), (first < 0) & (generator.random(count) < 2.1 * risk)

    many, wrong = draw(30_000)
    for _ in range(trials):
        scores, errors = draw(400)
        try:
            limits = limits_at_risk([*torch.from_numpy(scores)], torch.from_numpy(errors), risk)
        except DsuiError:
            continue
        kept = (many <= np.array(limits)[:, None]).all(0)
        breaches += wrong[kept].mean() > risk + 3 * math.sqrt(risk / kept.sum())  # three deviations of the estimate
    assert breaches / trials <= 1 - CONFIDENCE + THREE_DEVIATIONS / math.sqrt(trials)


def test_two_scores_that_are_the_same_find_what_few_tests_of_one_would() -> None:
    generator = np.random.default_rng(2)
    scores = torch.from_numpy(generator.random(2000))
    errors = torch.from_numpy(generator.random(2000) < steady(0.4, 3.0)(scores.numpy()))
    alone, (first, second) = limit_at_risk(scores, errors, 0.05), limits_at_risk([scores, scores], errors, 0.05)
    assert first == second
    assert alone - 0.1 < first <= alone  # steps of 5 %, and a twentieth of the level


@pytest.mark.parametrize("seed", range(6))
def test_the_sequences_are_those_of_a_plain_loop(seed: int) -> None:
    generator, count, risk = np.random.default_rng(seed), 700, 0.1
    scores = generator.normal(size=count).round(2 if seed % 2 else 9)  # with equal scores, and without
    errors = generator.random(count) < 0.3 / (1 + np.exp(-2 * scores))
    starts, values, best, died = starts_of(count, risk), np.sort(scores), None, -1
    for place in range(starts[0], count):
        chain = sum(start <= place for start in starts) - 1
        if place in starts:
            alive = True
        level = (1 - CONFIDENCE) * (chain - died) / len(starts)
        below = scores < values[place]
        alive = alive and stats.binom.cdf(errors[below].sum(), below.sum(), risk) <= level
        died = died if alive else chain
        best = values[place] if alive else best
    if best is None:
        with pytest.raises(DsuiError, match="cannot assure"):
            limit_at_risk(torch.from_numpy(scores), torch.from_numpy(errors), risk)
    else:
        assert limit_at_risk(torch.from_numpy(scores), torch.from_numpy(errors), risk) == np.nextafter(best, -np.inf)


@pytest.mark.parametrize(("level", "risk"), [(0.05, 0.02), (0.0125, 0.05), (0.0025, 0.3)])
def test_the_allowed_errors_are_the_bound_of_clopper_and_pearson(level: float, risk: float) -> None:
    allowed = allowed_errors(500, risk, level)
    for accepted in range(1, 501, 7):
        counts = np.arange(accepted)  # of all but the last, the upper bound is a quantile of the beta distribution
        holding = stats.beta.ppf(1 - level, counts + 1, accepted - counts) <= risk
        assert allowed[accepted] == holding.sum() - 1


def test_an_informative_score_finds_a_threshold_where_the_whole_is_too_often_wrong() -> None:
    """A quarter of all are wrong; the largest share with a risk of 0.05 is (4 * 0.05)^(1/3) = 58 %."""
    _, found = share_of_breaches(steady(1.0, 3.0), 1000, 0.05, 50)
    assert found == 1
    generator = np.random.default_rng(2)
    scores = torch.from_numpy(generator.random(30_000))
    errors = torch.from_numpy(generator.random(30_000)) < scores**3
    assert 0.57 < at_risk(scores, errors, 0.05).coverage < 0.585


def test_without_errors_all_images_but_the_most_uncertain_are_accepted() -> None:
    scores = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chosen = at_risk(scores, NONE_WRONG, 0.01)
    assert chosen[1:] == (0.999, 0.0, 1000)
    assert scores.sort().values[-2] <= chosen.value < scores.max()


@pytest.mark.parametrize("begin", [800, 900])
def test_errors_among_images_that_tie_count_whichever_come_first(begin: int) -> None:
    scores = torch.cat([torch.linspace(0, 1, 800, dtype=torch.float64), torch.ones(200, dtype=torch.float64)])
    errors = torch.zeros(1000, dtype=torch.bool)
    errors[begin : begin + 100] = True
    chosen = at_risk(scores, errors, 0.05)
    assert chosen.coverage == pytest.approx(0.799)  # the images below the tie
    assert chosen.risk == 0
    with pytest.raises(DsuiError, match="cannot assure a risk"):
        at_risk(torch.zeros(200, dtype=torch.float64), torch.arange(200) < 100, 0.05)


def test_a_risk_that_cannot_be_assured_is_told_with_what_it_takes() -> None:
    scores = torch.linspace(0, 1, 1000, dtype=torch.float64)
    assert needed(0.02) == math.ceil(math.log(0.05) / math.log(0.98)) == 149
    assert at_risk(scores[:150], NONE_WRONG[:150], 0.02).coverage == 149 / 150
    for count in (100, 149):
        with pytest.raises(DsuiError, match=f"{count} calibration images, 0 of them .* takes at least 149 accepted"):
            at_risk(scores[:count], NONE_WRONG[:count], 0.02)
    with pytest.raises(DsuiError, match="cannot assure a risk of 1e-320"):
        at_risk(scores[:100], NONE_WRONG[:100], 1e-320)
    with pytest.raises(DsuiError, match=r"cannot assure a risk of 0\.001"):
        limits_at_risk([scores[:200], scores[:200]], NONE_WRONG[:200], 0.001)


@pytest.mark.parametrize(("count", "risk"), [(150, 0.02), (300, 0.02), (300, 0.05), (5000, 0.1)])
def test_sequences_start_where_none_wrong_suffices_and_there_are_three_at_most(count: int, risk: float) -> None:
    starts = starts_of(count, risk)
    assert starts == tuple(sorted(set(starts)))
    assert len(starts) == min(3, count // needed(risk))
    assert starts[0] == needed(risk, len(starts)) < count
    assert len(starts) == 1 or starts[-1] == count - 1
