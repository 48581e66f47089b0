"""Every detector finds the foreign samples it was made for, and misses those it cannot see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dsui.detectors.ash import ASH
from dsui.detectors.detector import Detector
from dsui.detectors.em_mixture import EMMixture
from dsui.detectors.openmax import OpenMax
from dsui.detectors.registry import build, names
from dsui.outputs import Outputs
from tests.support.toy_features import classified, dim, faint, in_domain, separation, spiked, unseen

BY_FEATURES = ("knn", "vim", "mahalanobis", "gda", "em-mixture")


def found(detector: Detector, foreign: Outputs) -> float:
    detector.fit(in_domain(seed=0))
    return separation(detector.score(in_domain(100, seed=9)), detector.score(foreign))


@pytest.mark.parametrize("name", names())
def test_every_detector_finds_samples_without_a_clear_class(name: str) -> None:
    assert found(build(name), faint()) > 0.95


@pytest.mark.parametrize("name", BY_FEATURES)
def test_detectors_of_features_find_what_the_logits_cannot_show(name: str) -> None:
    assert found(build(name), unseen()) > 0.95


@pytest.mark.parametrize("name", ["energy", "max-logit", "gen", "kl-matching", "react", "openmax"])
def test_detectors_of_logits_do_not(name: str) -> None:
    assert 0.4 < found(build(name), unseen()) < 0.6  # four deviations of the AUROC of 500 against 500 equal samples


@pytest.mark.parametrize("name", [*BY_FEATURES, "react", "kl-matching", "relative-mahalanobis", "openmax"])
def test_one_wild_unit_does_not_hide_a_foreign_sample_from(name: str) -> None:
    assert found(build(name), spiked()) > 0.95


@pytest.mark.parametrize("name", ["energy", "max-logit", "gen", "she"])
def test_one_wild_unit_passes_for_a_class_with(name: str) -> None:
    assert found(build(name), spiked()) < 0.05


@pytest.mark.parametrize(
    ("detector", "foreign"),
    [(ASH("s"), dim), (ASH("p"), dim), (ASH("p"), faint), (OpenMax(variant="neal"), faint)],
    ids=["ash-s", "ash-p", "ash-p faint", "openmax neal"],
)
def test_variants_separate(detector: Detector, foreign: Callable[[], Outputs]) -> None:
    assert found(detector, foreign()) > 0.95


def test_a_second_component_finds_samples_between_the_halves_of_a_class() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = in_domain(200, seed=0), in_domain(100, seed=1)
    halves = [torch.where(torch.rand(len(part), 1, generator=generator) < 0.5, 0.0, 6.0) for part in (train, test)]
    train, test = (
        classified(part.features + half, part.labels) for part, half in zip((train, test), halves, strict=True)
    )
    between = classified(in_domain(100, seed=2).features + 3)
    scores = [EMMixture(components).fit(train) for components in (1, 2)]
    one, two = (separation(detector.score(test), detector.score(between)) for detector in scores)
    assert one < 0.05
    assert two > 0.95
