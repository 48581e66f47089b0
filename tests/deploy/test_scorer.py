"""The scores that thresholds may be set on: which ones, and the same whether they were stored or computed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsui.deploy.score_choice import ScoreChoice
from dsui.deploy.scorer import Chooser, prepare
from dsui.errors import DsuiError
from dsui.limits import Criterion, Finds
from dsui.runs.calibration import Calibration, stored_calibration
from dsui.runs.model import run_facts
from tests.support.digit_runs import CPU, HELD_OUT, calibrated, evaluation, own_copy, run

ERRORS: Finds = "errors"
FOREIGN: Finds = "foreign images"


def prepared(path: Path, choice: ScoreChoice, calibration: Calibration | None = None) -> Chooser:
    facts = run_facts(path)
    return prepare(facts, calibration or stored_calibration(facts), choice, CPU, keep_outputs=False)


def sampling() -> Path:
    """A run of a method that samples: it has no linear last layer and no energy."""
    return run("mc-dropout", held_out=HELD_OUT, neck=True, dropout=0.2, samples=3, epochs=1)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ScoreChoice(), {"uncertainty": ERRORS}),
        (ScoreChoice("entropy"), {"entropy": ERRORS}),
        (ScoreChoice("log_density"), {"log_density": FOREIGN}),
        (ScoreChoice(detector="relative-mahalanobis"), {"relative_mahalanobis": FOREIGN}),
        (ScoreChoice("sirc_knn", detector="knn"), {"sirc_knn": ERRORS}),
        (ScoreChoice(two=True), {"uncertainty": ERRORS, "foreignness": FOREIGN}),
        (ScoreChoice(two=True, detector="knn"), {"uncertainty": ERRORS, "knn": FOREIGN}),
        (ScoreChoice("entropy", "log_density"), {"entropy": ERRORS, "log_density": FOREIGN}),
    ],
)
def test_the_scores_that_are_meant(choice: ScoreChoice, expected: dict[str, Finds]) -> None:
    assert choice.finds() == expected
    choice.check()


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (ScoreChoice("foreignness", two=True), "both thresholds are of foreignness; choose two scores"),
        (ScoreChoice("entropy", detector="knn"), "knn gives the scores knn and sirc_knn, and none of them is chosen"),
        (ScoreChoice(detector="odin"), "odin changes each image by a backward pass.*choose another detector"),
        (ScoreChoice(detector="nn"), "no detector 'nn'; did you mean knn"),
        (ScoreChoice("knn"), "knn is a score of the detector knn; add --detector knn"),
        (
            ScoreChoice("mutual_information"),
            "dsui does not have the score mutual_information; choose another, for inst",
        ),
        (ScoreChoice("foreigness"), "no score 'foreigness'; did you mean foreignness"),
    ],
)
def test_a_choice_that_cannot_be_is_one_sentence(choice: ScoreChoice, sentence: str) -> None:
    with pytest.raises(DsuiError, match=sentence):
        prepared(calibrated(), choice)


def test_scores_computed_from_the_images_are_those_that_training_stored() -> None:
    facts = run_facts(calibrated())
    stored = stored_calibration(facts)
    older = replace(stored, scores={})
    again = prepared(calibrated(), ScoreChoice(two=True), older).calibration
    order = again.scores["uncertainty"].argsort(stable=True)
    assert torch.equal(again.errors[order], stored.errors)
    for name, values in stored.all_scores.items():
        torch.testing.assert_close(again.scores[name][order], values, rtol=1e-5, atol=1e-5)  # float32, other batches
    assert set(again.scores) > set(stored.all_scores), "variants are not stored"


def test_a_detector_is_fitted_to_training_images_and_scores_as_in_an_evaluation() -> None:
    chooser = prepared(calibrated(), ScoreChoice(detector="vim"))
    assert len(chooser.calibration.errors) == 200
    with evaluation(calibrated(), part="held-out", detectors=["vim"], keep_outputs=False) as evaluated:
        _, scores = evaluated.scores(evaluated.sources.own())
    for name in ("vim", "sirc_vim"):
        torch.testing.assert_close(chooser.calibration.scores[name], scores[name])
    with pytest.raises(DsuiError, match=r"the detector vim cannot be used with this run: .* no linear last layer"):
        prepared(sampling(), ScoreChoice(detector="vim"))


def test_a_method_without_the_second_score_says_so() -> None:
    with pytest.raises(DsuiError, match=r"mc-dropout does not have the score foreignness; choose .*mutual_information"):
        prepared(sampling(), ScoreChoice(two=True))
    chosen = prepared(sampling(), ScoreChoice("max_probability", "mutual_information")).choose(Criterion(0.9))
    assert chosen.coverage >= 0.9


def test_without_the_images_stored_scores_serve_and_others_are_told(tmp_path: Path) -> None:
    path = own_copy(calibrated(), tmp_path / "run")
    facts = run_facts(path)
    stored = stored_calibration(facts)
    gone = replace(facts, path=tmp_path / "gone")
    chooser = prepare(gone, stored, ScoreChoice(two=True), CPU)
    assert len(chooser.choose(Criterion(0.9)).limits) == 2
    for choice, what in ((ScoreChoice("max_logit"), "max_logit"), (ScoreChoice(detector="knn"), "the detector knn")):
        with pytest.raises(DsuiError, match=f"{what} needs the images that the model was trained on"):
            prepare(gone, stored, choice, CPU)
