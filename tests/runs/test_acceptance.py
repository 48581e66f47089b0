"""Thresholds of one score or of two: what is accepted, why not, and what is promised of both together."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from dsui.errors import DsuiError
from dsui.limits import Criterion, Finds, Limit
from dsui.runs.acceptance import Thresholds, choose
from dsui.runs.risk_control import CONFIDENCE
from dsui.runs.threshold import at_coverage, at_risk

BOTH: dict[str, Finds] = {"uncertainty": "errors", "foreignness": "foreign images"}
TWO = Thresholds(
    (Limit("uncertainty", 1 / 3, "errors"), Limit("knn", -2.5, "foreign images")),
    Criterion(0.95),
    0.96,
    0.01,
    300,
    "knn",
)


def pairs(count: int, correlation: float, generator: torch.Generator) -> dict[str, Tensor]:
    first, second = torch.randn(2, count, generator=generator, dtype=torch.float64)
    return {"uncertainty": first, "foreignness": correlation * first + math.sqrt(1 - correlation**2) * second}


def test_an_image_is_accepted_if_every_limit_accepts_it_and_the_reason_names_those_that_do_not() -> None:
    scores = {
        "uncertainty": torch.tensor([0.0, 1 / 3, 0.4, 0.0, 0.4, math.nan], dtype=torch.float64),
        "knn": torch.tensor([-3, -2.5, -3, -2, -2, -3], dtype=torch.float64),
    }
    assert TWO.accepted(scores).tolist() == [True, True, False, False, False, False]
    assert TWO.reasons(scores) == ["", "", "uncertain", "foreign", "uncertain and foreign", "uncertain"]


def test_thresholds_survive_their_text_to_the_bit() -> None:
    for each in (TWO, Thresholds(TWO.limits[:1], Criterion(risk=0.02), 1.0, 0.0, 1)):
        assert Thresholds.from_text(each.to_text()) == each


@pytest.mark.parametrize(
    "change",
    [
        {"limits": []},
        {"limits": [{"score": "entropy", "value": math.nan, "finds": "errors"}]},
        {"limits": [{"score": "entropy", "value": 1.0, "finds": "fish"}]},
        {"limits": 3 * [{"score": "entropy", "value": 1.0, "finds": "errors"}]},
        {"definition": 1},
        {"coverage": 2},
        {"images": 0},
        {"asked": None},
        {"detector": 7},
    ],
)
def test_a_strange_text_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Thresholds.from_text(json.dumps(json.loads(TWO.to_text()) | change))


@pytest.mark.parametrize("asked", [Criterion(0.9), Criterion(risk=0.3)])
def test_one_score_has_the_threshold_of_its_own(asked: Criterion) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, errors = pairs(200, 0.0, generator), torch.rand(200, generator=generator) < 0.1
    chosen = choose({"foreignness": "foreign images"}, scores, errors, asked)
    values = scores["foreignness"]
    alone = at_risk(values, errors, 0.3) if asked.coverage is None else at_coverage(values, errors, 0.9)
    assert (chosen.value, chosen.coverage, chosen.risk, chosen.images) == alone
    assert chosen.limits[0].finds == "foreign images"


@pytest.mark.parametrize("correlation", [0.0, 0.8, -0.9])
@pytest.mark.parametrize(("count", "coverage"), [(59, 0.95), (300, 0.95), (300, 0.8)])
def test_of_two_scores_the_coverage_is_the_chance_that_both_accept(
    count: int, coverage: float, correlation: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    right, shares = torch.zeros(count, dtype=torch.bool), []
    for _ in range(500):
        chosen = choose(BOTH, pairs(count, correlation, generator), right, Criterion(coverage))
        shares.append(chosen.accepted(pairs(1000, correlation, generator)).double().mean())
    mean, error = torch.stack(shares).mean(), torch.stack(shares).std() / math.sqrt(len(shares))
    assert coverage - 4 * error < mean < coverage + 5 / (count + 1) + 4 * error  # four deviations: 1 in 15,000


def test_each_of_two_scores_alone_rejects_as_many_calibration_images() -> None:
    scores = pairs(500, 0.5, torch.Generator().manual_seed(1))
    for asked in (Criterion(0.9), Criterion(risk=0.05)):
        chosen = choose(BOTH, scores, torch.zeros(500, dtype=torch.bool), asked)
        first, second = chosen.rejecting(scores).sum(1).tolist()
        assert first == second
        assert chosen.coverage == 1 - chosen.rejecting(scores).any(0).double().mean()
        assert chosen.coverage >= (asked.coverage or 0)


def test_the_risk_of_two_scores_that_say_nothing_is_assured_no_more_often_than_stated() -> None:
    """Every image is wrong with a chance just above the risk, so each threshold that is found is a breach."""
    generator, found, trials = torch.Generator().manual_seed(2), 0, 400
    for _ in range(trials):
        errors = torch.rand(400, generator=generator) < 0.0501
        try:
            choose(BOTH, pairs(400, 0.3, generator), errors, Criterion(risk=0.05))
        except DsuiError:
            continue
        found += 1
    assert found / trials <= 1 - CONFIDENCE + 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / trials)  # three deviations


def test_equal_scores_are_accepted_together_and_keep_the_coverage() -> None:
    generator = torch.Generator().manual_seed(3)
    scores = {name: values.round() for name, values in pairs(400, 0.0, generator).items()}
    chosen = choose(BOTH, scores, torch.zeros(400, dtype=torch.bool), Criterion(0.9))
    assert chosen.coverage >= 0.9
    assert {limit.value for limit in chosen.limits} <= {1.0, 2.0, 3.0}


@pytest.mark.parametrize(("coverage", "enough"), [(0.95, 59), (0.9, 29), (0.5, 5)])
def test_too_few_images_for_two_scores_are_told_with_how_many_suffice(coverage: float, enough: int) -> None:
    """The worst case: the two scores reject different images."""
    scores = {"uncertainty": torch.arange(enough).double(), "foreignness": -torch.arange(enough).double()}
    right = torch.zeros(enough, dtype=torch.bool)
    assert choose(BOTH, scores, right, Criterion(coverage)).coverage >= coverage
    fewer = {name: values[: enough - 1] for name, values in scores.items()}
    with pytest.raises(DsuiError, match=f"takes up to {enough} calibration images and there are {enough - 1}; choose"):
        choose(BOTH, fewer, right[1:], Criterion(coverage))
