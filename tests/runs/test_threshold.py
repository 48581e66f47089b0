"""What a threshold promises, by simulation and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dsui.errors import DsuiError
from dsui.runs.threshold import CONFIDENCE, LEVELS, allowed_errors, at_coverage, at_risk

NONE_WRONG = torch.zeros(1000, dtype=torch.bool)


@pytest.mark.parametrize(("count", "coverage"), [(19, 0.95), (100, 0.95), (57, 0.8), (300, 0.99), (1000, 0.5)])
def test_a_new_image_is_accepted_with_the_chance_that_was_asked_for(count: int, coverage: float) -> None:
    """Uncertainties uniform on [0, 1]: the chance of acceptance is the threshold itself, Beta(k, n + 1 - k)."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(2000, count, generator=generator, dtype=torch.float64)
    accepted = np.array([at_coverage(each, NONE_WRONG[:count], coverage).value for each in draws])
    mean, error = accepted.mean(), accepted.std() / math.sqrt(len(accepted))
    assert coverage - 4 * error < mean < coverage + 1 / (count + 1) + 4 * error  # four deviations: 1 in 15,000


def test_the_threshold_by_coverage_is_an_order_statistic_and_says_what_it_keeps() -> None:
    scores = torch.arange(100, dtype=torch.float64).flip(0)
    errors = scores >= 90
    chosen = at_coverage(scores, errors, 0.95)
    assert chosen == (95, 0.96, 6 / 96, 100)  # ceil(101 * 0.95) = 96 values: 0 to 95
    assert at_coverage(scores, errors, 0.5).risk == 0
    assert at_coverage(scores[1:], errors[1:], 0.55).value == 54  # 100 * 0.55 is 55.00000000000001 in float64


@pytest.mark.parametrize(
    ("coverage", "needed"), [(0.95, 19), (0.9, 9), (0.5, 1), (0.99, 99), (0.999, 999), (0.9999, 9999)]
)
def test_too_few_images_for_a_coverage_are_told_with_how_many_it_takes(coverage: float, needed: int) -> None:
    scores = torch.arange(needed, dtype=torch.float64)
    right = torch.zeros(needed, dtype=torch.bool)
    assert at_coverage(scores, right, coverage).value == needed - 1
    with pytest.raises(DsuiError, match=f"takes at least {needed} calibration images and there are {needed - 1}; "):
        at_coverage(scores[1:], right[1:], coverage)


def chances_of_breach(count: int, risk: float, exponent: float, scale: float, trials: int) -> tuple[float, float]:
    """How often the risk among accepted images is above `risk`, and how often there is a threshold at all.

    Uncertainties uniform on [0, 1], wrong with chance s u^e: up to t the risk is s t^e / (e + 1).
    """
    generator = torch.Generator().manual_seed(1)
    breaches = found = 0
    for _ in range(trials):
        scores = torch.rand(count, generator=generator, dtype=torch.float64)
        errors = torch.rand(count, generator=generator, dtype=torch.float64) < scale * scores**exponent
        try:
            chosen = at_risk(scores, errors, risk).value
        except DsuiError:
            continue
        found += 1
        breaches += scale * chosen**exponent / (exponent + 1) > risk
    return breaches / trials, found / trials


@pytest.mark.parametrize(
    ("count", "risk", "exponent", "scale"),
    [
        (400, 0.05, 0.0, 0.0501),  # says nothing and is just too often wrong: every threshold is a breach
        (2000, 0.1, 0.0, 0.1001),
        (400, 0.05, 0.2, 0.07),
        (400, 0.05, 2.0, 0.6),
        (1000, 0.02, 3.0, 1.0),
    ],
)
def test_the_risk_is_kept_with_the_stated_confidence(count: int, risk: float, exponent: float, scale: float) -> None:
    breached, _ = chances_of_breach(count, risk, exponent, scale, trials := 600)
    assert breached <= 1 - CONFIDENCE + 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / trials)  # three deviations


def test_an_informative_score_finds_a_threshold_where_the_whole_is_too_often_wrong() -> None:
    """A quarter of all are wrong; the largest share with a risk of 0.05 is (4 * 0.05)^(1/3) = 58 %."""
    _, found = chances_of_breach(1000, 0.05, 3.0, 1.0, 200)
    assert found == 1
    scores = torch.rand(100_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    errors = torch.rand(100_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64) < scores**3
    assert at_risk(scores, errors, 0.05).coverage == 0.55  # of 5 % steps the last below 58 %


@pytest.mark.parametrize("seed", range(5))
def test_the_coverage_by_risk_is_the_largest_step_with_few_enough_errors(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=700)
    errors = generator.random(700) < 0.3 / (1 + np.exp(-2 * scores))
    order = np.argsort(scores)
    assert [kept for kept, _ in allowed_errors(700, 0.1)] == [35 * level for level in range(1, 21)]
    for risk in (0.05, 0.1, 0.2):
        holding = [kept for kept, most in allowed_errors(700, risk) if errors[order[:kept]].sum() <= most]
        if holding:
            chosen = at_risk(torch.from_numpy(scores), torch.from_numpy(errors), risk)
            assert chosen.value == scores[order[max(holding) - 1]]
            assert chosen.risk == pytest.approx(errors[order[: max(holding)]].mean())


def chance_of_any(steps: list[int], allowed: list[int], risk: float) -> float:
    """One image at a time: that few enough errors are met at any step."""
    chances, met = {0: 1.0}, 0.0
    for image in range(1, steps[-1] + 1):
        following: dict[int, float] = {}
        for errors, chance in chances.items():
            following[errors] = following.get(errors, 0.0) + chance * (1 - risk)
            following[errors + 1] = following.get(errors + 1, 0.0) + chance * risk
        chances = following
        for step, most in zip(steps, allowed, strict=True):
            if step == image:
                met += sum(chances.pop(errors) for errors in [*chances] if errors <= most)
    return met


@pytest.mark.parametrize(("count", "risk"), [(100, 0.05), (149, 0.02), (300, 0.02), (300, 0.1), (500, 0.3)])
def test_errors_at_the_rate_of_the_risk_meet_a_count_with_five_per_cent(count: int, risk: float) -> None:
    steps, allowed = map(list, zip(*allowed_errors(count, risk), strict=True))
    chance = chance_of_any(steps, allowed, risk)
    assert 0.03 < chance <= 1 - CONFIDENCE  # 0.035 to 0.050 when written: counts are integers
    bonferroni = stats.binom.ppf((1 - CONFIDENCE) / LEVELS, steps, risk) - 1
    assert all(most >= least for most, least in zip(allowed, bonferroni, strict=True))
    assert allowed == sorted(allowed)


def test_all_images_are_kept_up_to_the_largest_uncertainty_where_the_risk_allows_it() -> None:
    scores = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert at_risk(scores, NONE_WRONG, 0.01) == (scores.max().item(), 1.0, 0.0, 1000)


def test_images_that_tie_with_the_last_are_accepted_too_and_counted() -> None:
    scores = torch.tensor([0.0] * 10 + [1.0] * 90, dtype=torch.float64)
    assert at_coverage(scores, NONE_WRONG[:100], 0.5) == (1.0, 1.0, 0.0, 100)


@pytest.mark.parametrize("begin", [800, 900])
def test_errors_among_images_that_tie_count_whichever_come_first(begin: int) -> None:
    scores = torch.cat([torch.linspace(0, 1, 800, dtype=torch.float64), torch.ones(200, dtype=torch.float64)])
    errors = torch.zeros(1000, dtype=torch.bool)
    errors[begin : begin + 100] = True
    chosen = at_risk(scores, errors, 0.05)
    assert chosen.coverage == pytest.approx(0.75)  # 799 images lie below the tie, of which 5 % steps keep 750
    assert chosen.risk == 0
    with pytest.raises(DsuiError, match="cannot assure a risk"):
        at_risk(torch.zeros(200, dtype=torch.float64), torch.arange(200) < 100, 0.05)


def test_a_risk_that_cannot_be_assured_is_told_with_what_it_takes() -> None:
    scores = torch.linspace(0, 1, 1000, dtype=torch.float64)
    needed = math.ceil(math.log(0.05) / math.log(0.98))
    assert at_risk(scores[:needed], NONE_WRONG[:needed], 0.02).coverage == 1
    with pytest.raises(DsuiError, match=f"100 calibration images, 0 of them .* takes at least {needed} accepted ones"):
        at_risk(scores[:100], NONE_WRONG[:100], 0.02)
    with pytest.raises(DsuiError, match="cannot assure a risk of 1e-320"):
        at_risk(scores[:100], NONE_WRONG[:100], 1e-320)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_share_that_is_none_is_told_by_value(share: float) -> None:
    scores = torch.rand(1000)
    with pytest.raises(ValueError, match="coverage must be a share of the images between 0 and 1"):
        at_coverage(scores, NONE_WRONG, share)
    with pytest.raises(ValueError, match="risk must be a share of wrong predictions between 0 and 1"):
        at_risk(scores, NONE_WRONG, share)
