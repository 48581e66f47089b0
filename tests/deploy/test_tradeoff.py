"""The curve of what thresholds let through, against counting at each threshold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsui.deploy.scorer import ScoredSet
from dsui.deploy.tradeoff import measure_tradeoff, tradeoff
from dsui.limits import Criterion, Finds, Limit
from dsui.runs.acceptance import Thresholds
from dsui.runs.model import fingerprint
from dsui.runs.saved_thresholds import THRESHOLDS, save_thresholds
from tests.support.digit_runs import calibrated, evaluation, own_copy, run

FOREIGN: Finds = "foreign images"


def images(count: int, shift: float, seed: int) -> ScoredSet:
    """Scores of one decimal, so that some are equal."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(2, count, generator=generator, dtype=torch.float64) + shift).mul(10).round().div(10)
    errors = torch.rand(count, generator=generator) < 0.2
    return ScoredSet({"uncertainty": scores[0], "foreignness": scores[1]}, errors)


def test_each_point_of_one_score_is_what_its_threshold_accepts() -> None:
    own, foreign = images(200, 0.0, 0), images(100, 1.0, 1)
    found = tradeoff(own, {"photos": foreign}, None, saved=False)
    values = own.scores["uncertainty"].unique()
    assert len(found.coverage) == len(values)
    for place, value in enumerate(values):
        kept = own.scores["uncertainty"] <= value
        assert found.coverage[place] == pytest.approx(kept.double().mean().item())
        assert found.errors[place] == pytest.approx(own.errors[kept].double().mean().item())
        passing = (foreign.scores["uncertainty"] <= value).double().mean().item()
        assert found.passing["photos"][place] == pytest.approx(passing)
    assert found.coverage[-1] == 1


def test_thresholds_of_two_scores_lie_on_their_curve_where_they_reject_equally_many() -> None:
    own, foreign = images(200, 0.0, 2), images(100, 1.0, 3)
    ordered = [values.sort().values for values in own.scores.values()]
    limits = tuple(Limit(name, each[179].item(), FOREIGN) for name, each in zip(own.scores, ordered, strict=True))
    chosen = Thresholds(limits, Criterion(0.8), 0.8, 0.1, 200)
    found = tradeoff(own, {"photos": foreign}, chosen, saved=True)
    effect, theirs = found.effects["test"], found.effects["photos"]
    place = int((found.coverage - (effect.accepted or 0)).abs().argmin())
    assert found.coverage[place] == pytest.approx(effect.accepted)
    assert found.errors[place] == pytest.approx(effect.wrong)
    assert found.passing["photos"][place] == pytest.approx(theirs.accepted)
    assert theirs.wrong is None


def test_a_run_is_drawn_by_what_it_keeps_or_by_the_usual_coverage_or_without_a_mark(tmp_path: Path) -> None:
    path, heard = own_copy(calibrated(), tmp_path / "run"), list[str]()
    with evaluation(path) as evaluated:
        usual = measure_tradeoff(evaluated, {"noise": evaluated.sources.noise()})
        assert (usual.saved, usual.scores) == (False, ("uncertainty",))
        assert usual.thresholds is not None
        assert usual.thresholds.asked == Criterion(0.95)
        kept = Thresholds((Limit("log_density", 150.0, FOREIGN),), Criterion(0.5), 0.5, 0.0, 200)
        save_thresholds(path, kept, fingerprint(path))
        found = measure_tradeoff(evaluated, {"noise": evaluated.sources.noise()})
        assert (found.saved, found.scores, found.thresholds) == (True, ("log_density",), kept)
        (path / THRESHOLDS).write_bytes(b"nonsense")
        assert not measure_tradeoff(evaluated, {}, heard.append).saved
        assert "cannot be used" in heard[0]
    with evaluation(run()) as evaluated:
        bare = measure_tradeoff(evaluated, {})
        assert (bare.thresholds, bare.effects) == (None, {})
        assert bare.coverage[-1] == 1
