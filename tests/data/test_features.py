"""Features as data: their split, their reading, noise made of them, and what a class needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsui.data.dataset import subset
from dsui.data.features import (
    FeatureTransform,
    feature_set,
    features_of,
    foreign_features,
    shuffled_features,
    usual_batch,
)
from dsui.data.folder import files_for_test
from dsui.data.registry import load
from dsui.errors import DataError
from tests.support.feature_files import WIDTH, written


def test_rows_are_images_of_one_pixel_in_float32(tmp_path: Path) -> None:
    images = load(f"features:{written(tmp_path)}", "train")
    block = images.read(torch.tensor([3, 0]))
    assert (images.shape, block.shape, block.dtype) == ((WIDTH, 1, 1), (2, WIDTH, 1, 1), torch.float32)
    assert torch.equal(FeatureTransform().augmented(block, torch.zeros(2), 0), block)


def test_the_splits_are_those_of_the_file(tmp_path: Path) -> None:
    split = np.array(["test" if row % 3 == 0 else "train" for row in range(600)])
    path = written(tmp_path, split=split)
    assert feature_set(path, "test").rows.tolist() == list(range(0, 600, 3))
    assert feature_set(path, "train").set_aside == 0


def test_without_a_split_names_decide_as_they_do_for_folders(tmp_path: Path) -> None:
    names = [f"cat/{row}.png" for row in range(600)]
    path = written(tmp_path, names=np.array(names), labels=np.zeros(600, dtype=np.int64))
    chosen = files_for_test([Path("photos", name) for name in names], Path("photos"))
    found = feature_set(path, "test")
    assert [names[row] for row in found.rows.tolist()] == [name for name in names if Path("photos", name) in chosen]
    train = feature_set(path, "train")
    assert sorted([*train.rows.tolist(), *found.rows.tolist()]) == list(range(600))
    assert train.set_aside == len(found.rows)


def test_foreign_features_need_no_labels_and_are_all_used(tmp_path: Path) -> None:
    assert len(foreign_features(written(tmp_path, labels=None)).labels) == 600
    split = np.array(["test"] * 10 + ["train"] * 590)
    assert len(foreign_features(written(tmp_path, split=split)).labels) == 10


def test_a_class_without_training_rows_is_told(tmp_path: Path) -> None:
    labels = np.array(["cat"] * 300 + ["dog"] * 300)
    path = written(tmp_path, labels=labels, split=np.array(["train"] * 300 + ["test"] * 300))
    with pytest.raises(DataError, match="class dog has rows for test and none for training"):
        feature_set(path, "train")
    with pytest.raises(DataError, match="holds no `labels`"):
        feature_set(written(tmp_path, labels=None), "train")


def test_shuffled_features_keep_each_feature_and_no_pair(tmp_path: Path) -> None:
    images = feature_set(written(tmp_path), "train")
    own = images.read(torch.arange(len(images.labels))).flatten(1)
    noise = shuffled_features(images, 4000, seed=0).flatten(1)
    assert all(torch.isin(noise[:, column], own[:, column]).all() for column in range(WIDTH))
    off_diagonal = ~torch.eye(WIDTH, dtype=torch.bool)
    varies = own.std(0) > 0
    pairs = off_diagonal & varies & varies[:, None]
    assert torch.corrcoef(own.T)[pairs].abs().mean() > 0.1
    assert torch.corrcoef(noise.T)[pairs].abs().mean() < 0.03  # 1 / sqrt(4000) is 0.016


def test_the_digest_shows_a_changed_number_and_a_subset_has_its_set(tmp_path: Path) -> None:
    first = feature_set(written(tmp_path), "train")
    before = first.digest()
    part = subset(first, torch.arange(5), "part")
    assert features_of(part) is first
    features = first.file.features.numpy().copy()
    features[0, 0] += 1
    assert feature_set(written(tmp_path, features=features), "train").digest() != before


@given(st.integers(1, 10**9))
def test_the_usual_batch_gives_sixteen_steps_or_is_at_a_bound(rows: int) -> None:
    batch = usual_batch(rows)
    assert batch in {16, 32, 64, 128, 256, 512}
    assert batch == 16 or rows // batch >= 16
    assert batch == 512 or rows // (2 * batch) < 16
