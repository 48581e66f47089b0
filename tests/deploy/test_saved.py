"""A run with saved thresholds: what a Predictor and a classifier take from it, and what they leave in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dsui import Predictor, UncertaintyClassifier
from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.runs.model import fingerprint
from dsui.runs.saved_thresholds import THRESHOLDS, save_thresholds, saved_thresholds
from tests.support.digit_runs import calibrated, own_copy

TEST = load("digits", "test").read(torch.arange(200))
NOISE = torch.randint(256, (100, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
IMAGES = torch.cat([TEST, NOISE])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return own_copy(calibrated(), tmp_path / "run")


@pytest.mark.parametrize("detector", [None, "knn", "gda", "react"])
def test_saved_thresholds_decide_alike_after_loading(copy: Path, detector: str | None) -> None:
    first = Predictor.load(copy, "cpu")
    chosen = first.threshold(coverage=0.9, two=True, detector=detector)
    said = first.predict(IMAGES)
    assert said.abnormal is not None
    assert said.reason is not None
    assert first.save_threshold() == copy / THRESHOLDS
    again = Predictor.load(copy, "cpu")
    assert again.chosen == chosen == saved_thresholds(copy)
    repeated = again.predict(IMAGES)
    assert repeated.abnormal is not None
    assert np.array_equal(repeated.abnormal, said.abnormal)
    assert list(repeated.scores) == ["uncertainty", detector or "foreignness"]
    for name, values in said.scores.items():
        assert np.array_equal(repeated.scores[name], values)
    uncertain, foreign = (
        values > limit.value for limit, values in zip(chosen.limits, said.scores.values(), strict=True)
    )
    words = np.array(["", "uncertain", "foreign", "uncertain and foreign"])
    assert said.reason.tolist() == words[uncertain + 2 * foreign].tolist()
    assert np.array_equal(said.abnormal, uncertain | foreign)
    assert foreign[200:].mean() > foreign[:200].mean(), "noise is more foreign than digits"


def test_another_threshold_takes_the_place_of_the_saved_one_until_the_next_loading(copy: Path) -> None:
    first = Predictor.load(copy, "cpu")
    saved = first.threshold(coverage=0.9, detector="knn")
    first.save_threshold()
    again = Predictor.load(copy, "cpu")
    other = again.threshold(coverage=0.8)
    assert [limit.score for limit in other.limits] == ["uncertainty"]
    said = again.predict(TEST)
    assert np.array_equal(said.abnormal, said.uncertainty > other.value)
    assert Predictor.load(copy, "cpu").chosen == saved


def test_a_run_without_saved_thresholds_decides_nothing_and_has_none_to_save() -> None:
    predictor = Predictor.load(calibrated(), "cpu")
    said = predictor.predict(TEST[:3])
    assert (predictor.chosen, said.abnormal, said.reason, said.scores) == (None, None, None, {})
    with pytest.raises(DsuiError, match=r"no threshold is chosen; call threshold\(coverage=0.95\) first"):
        predictor.save_threshold()


def test_thresholds_whose_detector_is_damaged_are_refused_when_the_run_is_loaded(copy: Path) -> None:
    predictor = Predictor.load(copy, "cpu")
    chosen = predictor.threshold(coverage=0.9, detector="knn")
    tensors = predictor.save_threshold()
    found = load_file(tensors)
    for wrong in ({}, {**found, "_bank": found["_bank"][:, :5]}, {**found, "sizes": torch.tensor([5, 10])}):
        save_thresholds(copy, chosen, fingerprint(copy), wrong)
        with pytest.raises(DsuiError, match=r"thresholds\.safetensors cannot be used .*choose them again"):
            Predictor.load(copy, "cpu")


def test_a_classifier_saves_the_thresholds_in_use_and_takes_them_back(copy: Path, tmp_path: Path) -> None:
    classifier = UncertaintyClassifier.load(copy, device="cpu")
    assert classifier.predict(TEST[:3]).abnormal is None
    classifier.save(tmp_path / "bare")
    assert not (tmp_path / "bare" / THRESHOLDS).exists()
    chosen = classifier.threshold(coverage=0.9, foreign_score="log_density")
    classifier.save(tmp_path / "kept")
    again = UncertaintyClassifier.load(tmp_path / "kept", device="cpu")
    assert again.predictor_.chosen == chosen
    assert np.array_equal(again.predict(IMAGES).abnormal, classifier.predict(IMAGES).abnormal)


def test_a_classifier_of_arrays_has_two_thresholds_and_no_detector() -> None:
    digits = load("digits", "train")
    images, labels = digits.read(torch.arange(400)), digits.labels[:400]
    classifier = UncertaintyClassifier("small", recipe="demo", calibration=0.3, device="cpu").fit(
        images, labels, epochs=1
    )
    assert len(classifier.threshold(coverage=0.9, two=True).limits) == 2
    with pytest.raises(DsuiError, match="the detector knn needs the images that the model was trained on"):
        classifier.threshold(coverage=0.9, detector="knn")
