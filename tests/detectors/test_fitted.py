"""What a detector learned is kept as tensors and gives the same scores to the bit when it is read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsui.detectors.fitted import FittedDetector
from dsui.detectors.registry import build, names
from dsui.scores import Moments, max_probability, sirc
from tests.support.toy_features import faint, in_domain

CPU = torch.device("cpu")


def fitted(name: str) -> FittedDetector:
    return FittedDetector(name, build(name).fit(in_domain(seed=0)), Moments(1 / 3, 2.5))


@pytest.mark.parametrize("name", names())
def test_a_detector_read_from_its_file_scores_as_before_to_the_bit(name: str, tmp_path: Path) -> None:
    before = fitted(name)
    save_file({key: value.contiguous() for key, value in before.tensors().items()}, tmp_path / "d.safetensors")
    after = FittedDetector.of(name, load_file(tmp_path / "d.safetensors"), CPU)
    for images in (in_domain(50, seed=5), faint()):
        assert torch.equal(after.detector.score(images), before.detector.score(images))
    assert after.moments == before.moments


def test_what_a_detector_did_not_learn_is_refused_in_a_sentence() -> None:
    tensors = fitted("vim").tensors()
    with pytest.raises(ValueError, match="this is not what KNN learns"):
        FittedDetector.of("knn", tensors, CPU)
    with pytest.raises(ValueError, match="the moments of vim are missing"):
        FittedDetector.of("vim", {key: value for key, value in tensors.items() if key != "moments"}, CPU)
    with pytest.raises(ValueError, match="KNN is not fitted; call fit before learned"):
        build("knn").learned()
    few = in_domain(10)
    narrow = FittedDetector.of("vim", tensors, CPU).detector
    with pytest.raises(ValueError, match="was fitted to 48 features and 5 classes on cpu and these outputs have 48"):
        narrow.score(few.first_classes(4, 1.0))


def test_the_joint_score_is_that_of_sirc_unless_the_model_has_one() -> None:
    images, knn = in_domain(5, seed=1), fitted("knn")
    found = knn.scores(images, {})
    assert list(found) == ["knn", "sirc_knn"]
    assert torch.equal(found["sirc_knn"], sirc(images.logits, found["knn"], 1 / 3, 2.5))
    known = {"sirc_knn": max_probability(images.logits)}
    assert torch.equal(knn.scores(images, known)["sirc_knn"], known["sirc_knn"])
