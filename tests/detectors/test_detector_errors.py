"""What a detector cannot use it refuses in one sentence, and a name that does not exist finds its neighbour."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from dsui.detectors.ash import ASH
from dsui.detectors.em_mixture import EMMixture
from dsui.detectors.energy import Energy
from dsui.detectors.gda import GDA
from dsui.detectors.gen import GEN
from dsui.detectors.knn import KNN
from dsui.detectors.mahalanobis import Mahalanobis
from dsui.detectors.openmax import OpenMax
from dsui.detectors.react import ReAct
from dsui.detectors.registry import DETECTORS, build, names, obstacle
from dsui.detectors.she import SHE
from dsui.detectors.vim import ViM
from dsui.errors import DsuiError
from dsui.outputs import Outputs
from tests.support.toy_features import faint, in_domain

TRAIN = in_domain(30)
LABELLED = [name for name, kind in DETECTORS.items() if kind.needs_labels]
WEIGHTED = [name for name, kind in DETECTORS.items() if kind.needs_weight]


def usable(outputs: Outputs) -> tuple[str, ...]:
    return tuple(name for name in names() if obstacle(name, outputs) is None)


ADVICE = "use energy, gen or knn, which need neither labels nor a last layer."


def test_what_is_advised_needs_neither_labels_nor_a_last_layer() -> None:
    bare = replace(TRAIN, labels=None, weight=None, bias=None)
    assert [obstacle(name, bare) for name in ("energy", "gen", "knn")] == [None] * 3


def test_a_misspelt_name_finds_its_neighbour() -> None:
    with pytest.raises(DsuiError, match="no detector 'Mahalanobi'; did you mean mahalanobis"):
        build("Mahalanobi")


@pytest.mark.parametrize("name", LABELLED)
def test_missing_labels_are_named_with_what_needs_none(name: str) -> None:
    bare = replace(TRAIN, labels=None)
    sentence = f"{DETECTORS[name].__name__} needs the labels of the training samples and there are none; "
    with pytest.raises(DsuiError, match=re.escape(sentence + ADVICE)):
        build(name).fit(bare)


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_missing_last_layer_is_named_with_what_needs_none(name: str) -> None:
    bare = replace(TRAIN, weight=None, bias=None)
    sentence = f"{DETECTORS[name].__name__} needs a linear last layer and these outputs hold no weight; "
    with pytest.raises(DsuiError, match=re.escape(sentence + ADVICE)):
        build(name).fit(bare)
    with pytest.raises(DsuiError, match="needs a linear last layer"):
        build(name).fit(TRAIN).score(bare)


@pytest.mark.parametrize("bare", [replace(TRAIN, labels=None), replace(TRAIN, weight=None), TRAIN])
def test_what_is_called_usable_is(bare: Outputs) -> None:
    for name in usable(bare):
        assert len(build(name).fit(bare).score(bare)) == len(bare)
    assert usable(TRAIN) == names()


@pytest.mark.parametrize("name", names())
def test_not_a_number_is_refused_when_fitting_and_when_scoring(name: str) -> None:
    bad = replace(faint(9), features=faint(9).features.clone(), labels=torch.arange(9) % 5)
    bad.features[[2, 5], 0] = torch.tensor([torch.nan, torch.inf], dtype=torch.float64)
    with pytest.raises(ValueError, match="the features of 2 of 9 samples hold NaN or infinity; check the model"):
        build(name).fit(bad)
    with pytest.raises(ValueError, match="the features of 2 of 9 samples hold NaN or infinity"):
        build(name).fit(TRAIN).score(bad)
    bad = replace(faint(9), logits=faint(9).logits * torch.inf)
    with pytest.raises(ValueError, match="the logits of 9 of 9 samples hold NaN or infinity"):
        build(name).fit(TRAIN).score(bad)


@pytest.mark.parametrize("name", LABELLED)
def test_a_class_without_samples_is_named(name: str) -> None:
    assert TRAIN.labels is not None
    with pytest.raises(ValueError, match=r"class 3 has no training sample; \w+ needs one of every class"):
        build(name).fit(TRAIN.select(torch.nonzero(TRAIN.labels != 3)[:, 0]))
    with pytest.raises(ValueError, match="labels run from 1 to 5; 5 classes need labels 0 to 4"):
        build(name).fit(replace(TRAIN, labels=TRAIN.labels + 1))


@pytest.mark.parametrize("name", names())
def test_scoring_before_fitting_is_refused_where_there_is_something_to_fit(name: str) -> None:
    detector = build(name)
    if not detector.needs_fit:
        assert torch.equal(detector.score(TRAIN), build(name).fit(TRAIN).score(TRAIN))
        return
    with pytest.raises(ValueError, match="is not fitted; call fit with the outputs of training samples first"):
        detector.score(TRAIN)


@pytest.mark.parametrize("name", names())
def test_no_samples_and_other_shapes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="was given no training samples"):
        build(name).fit(TRAIN.select(torch.tensor([], dtype=torch.int64)))
    narrow = Outputs(TRAIN.features[:, :7], TRAIN.logits, weight=torch.zeros(5, 7))
    with pytest.raises(
        ValueError, match="fitted to 48 features and 5 classes on cpu and these outputs have 7 features"
    ):
        build(name).fit(TRAIN).score(narrow)
    with pytest.raises(ValueError, match=r"features have shape \[7, 48\] and logits \[150, 5\]"):
        build(name).fit(replace(TRAIN, features=TRAIN.features[:7]))


def test_fewer_samples_than_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="KNN needs neighbour 151 and was given 150 training samples; give more"):
        KNN(k=151).fit(TRAIN)
    assert float(KNN(k=150).fit(TRAIN).score(TRAIN).min()) > 0


def test_features_that_do_not_vary_are_refused_and_dead_units_are_not() -> None:
    still = replace(TRAIN, features=torch.ones_like(TRAIN.features))
    for detector in (Mahalanobis(), GDA()):
        with pytest.raises(ValueError, match="the covariance of the features is singular with shrinkage 1e-06"):
            detector.fit(still)
    with pytest.raises(ValueError, match="the features do not vary within any class"):
        EMMixture().fit(still)
    dead = replace(TRAIN, features=TRAIN.features.clone())
    dead.features[:, -3:] = 0
    for name in names():
        assert bool(build(name).fit(dead).score(faint(9)).isfinite().all())
    with pytest.raises(ValueError, match="singular with shrinkage 0"):
        Mahalanobis(shrinkage=0).fit(dead)


def test_one_sample_per_class_is_enough_for_what_needs_no_spread() -> None:
    few = TRAIN.select(torch.arange(0, 150, 30))
    for detector in (SHE(), OpenMax(), KNN(k=1), ViM()):
        assert bool(detector.fit(few).score(TRAIN).isfinite().all())


def test_settings_out_of_range_are_refused() -> None:
    for make, sentence in (
        (lambda: Energy(0), "temperature must be positive"),
        (lambda: GEN(gamma=-1), "gamma must be positive"),
        (lambda: GEN(top=0), "top must be at least 1"),
        (lambda: KNN(k=0), "k must be at least 1"),
        (lambda: ReAct(101), "percentile must be between 0 and 100"),
        (lambda: ASH(percentile=100), "percentile must be at least 0 and below 100"),
        (lambda: ASH("x"), "variant must be one of 'b', 's', 'p'"),  # type: ignore[arg-type]
        (lambda: Mahalanobis(-1), "shrinkage must be finite and not negative"),
        (lambda: EMMixture(0), "components must be at least 1"),
        (lambda: EMMixture(floor=0), "floor must be positive"),
        (lambda: OpenMax(tail=1), "tail must be at least 2"),
        (lambda: OpenMax(alpha=0), "alpha must be at least 1"),
        (lambda: ViM(49).fit(TRAIN), "dimension must be between 0 and the number of features, 48, got 49"),
    ):
        with pytest.raises(ValueError, match=sentence):
            make()
