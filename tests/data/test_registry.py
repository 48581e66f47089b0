"""Data sets by name, and the two that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from dsui.data.digits import digits
from dsui.data.photos import photo_patches
from dsui.data.registry import (
    DATASETS,
    TEST_ONLY,
    check_present,
    dataset_info,
    default_root,
    foreign_split,
    load,
)
from dsui.errors import DataError
from tests.support.official_files import write_cifar10


def test_the_names_of_the_contract_are_there() -> None:
    assert set(DATASETS) == {
        "digits", "digits-256", "photos", "cifar10", "cifar100", "svhn", "tiny-imagenet", "mnist", "fashion-mnist",
    }  # fmt: skip
    assert all(name == entry.name for name, entry in DATASETS.items())


def test_a_set_is_read_from_the_root_or_from_dsui_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path)
    assert len(load("cifar10", "train", tmp_path).labels) == 20
    monkeypatch.setenv("DSUI_DATA", str(tmp_path))
    assert len(load("cifar10", "test").labels) == 4
    monkeypatch.delenv("DSUI_DATA")
    assert default_root() == Path.home() / ".cache" / "dsui" / "data"


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("cifar-10", "cifar10"), ("CIFAR100", "cifar100"), ("tinyimagenet", "tiny-imagenet")]
)
def test_a_wrong_name_is_answered_with_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(DataError, match=f"no data set '{wrong}'; did you mean {nearest}"):
        load(wrong, "train")


def test_a_name_like_no_other_is_answered_with_all_of_them() -> None:
    with pytest.raises(DataError, match=r"choose from digits, digits-256, photos, .* and folder:PATH"):
        load("qqqq", "train")


def test_a_split_that_a_set_has_not_is_answered_with_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="photos has no split 'train'; choose test"):
        load("photos", "train")
    with pytest.raises(DataError, match="no split 'val'; choose train or test"):
        load(f"folder:{tmp_path}", "val")


def test_a_folder_that_is_there_is_named_with_its_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "cifar-10"):
        (tmp_path / name).mkdir()
    for name in ("./photos", "cifar-10"):
        with pytest.raises(DataError, match=f"no data set '{name}'; a folder is named folder:{name}"):
            load(name, "train")
    with pytest.raises(DataError, match="no split 'train'; choose test, or folder:photos for the folder of that name"):
        load("photos", "train")


def test_a_folder_takes_options_and_a_published_set_size_alone(tmp_path: Path) -> None:
    (tmp_path / "train" / "ant").mkdir(parents=True)
    Image.new("L", (9, 9)).save(tmp_path / "train" / "ant" / "1.png")
    assert load(f"folder:{tmp_path}", "train", size=5, channels=1).shape == (1, 5, 5)
    with pytest.raises(DataError, match="channels may be chosen for folder:PATH only"):
        load("digits", "train", channels=1)
    assert load("digits", "train", size=4).shape == (1, 4, 4)
    with pytest.raises(DataError, match="needs a path"):
        load("folder:", "train")


@pytest.mark.parametrize(("name", "count"), [("digits", 1000), ("digits-256", 256)])
def test_the_digits_are_split_once_and_for_all(name: str, count: int) -> None:
    train, test = load(name, "train"), load(name, "test")
    assert set(torch.bincount(train.labels).tolist()) <= {count // 10, count // 10 + 1}
    assert (len(train.labels), len(test.labels)) == (count, 1797 - count)
    assert torch.equal(load(name, "train").read(torch.arange(9)), train.read(torch.arange(9)))
    together = torch.cat([split.read(torch.arange(len(split.labels))) for split in (train, test)])
    # The 17 grey levels survive the 8 bits, so together the splits are the digits.
    levels = (together.double() * 16 / 255).round().sum((1, 2, 3)).sort().values
    assert torch.equal(levels, (digits()[0].double() * 16).sum((1, 2, 3)).sort().values)


def test_photo_patches_in_grey_are_those_in_colour_weighted() -> None:
    colour = load("photos", "test").read(torch.arange(50)).double() / 255
    grey = (colour * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    # Rounding to 8 bits moves each channel by at most half a level.
    assert torch.allclose(grey, photo_patches(50, 32, 0).double(), atol=0.5 / 255 + 1e-6)


def test_a_run_on_arrays_is_told_so_whatever_folders_lie_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arrays").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="trained on arrays in memory"):
        dataset_info("arrays")


def test_foreign_images_may_be_of_a_training_split() -> None:
    assert foreign_split("svhn") == ("svhn", "test")
    assert foreign_split("svhn@train") == ("svhn", "train")
    assert foreign_split("folder:my@train") == ("folder:my@train", "test")
    for name, sentence in {
        "svnh@train": "did you mean svhn",
        "svhn@valid": "There are no foreign images 'svhn@valid'; write svhn for its test split or svhn@train for its",
        "photos@train": "photos has no training images, so there is no photos@train; choose another data set",
    }.items():
        with pytest.raises(DataError, match=sentence):
            foreign_split(name)


def test_the_sets_without_a_training_split_are_those_that_are_named() -> None:
    assert {name for name, info in DATASETS.items() if "train" not in info.splits} == set(TEST_ONLY)


def test_a_training_split_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_32x32.mat").touch()
    check_present("svhn", tmp_path)
    with pytest.raises(DataError, match=r"the training split of svhn is not below .*; run `dsui data get svhn`"):
        check_present("svhn@train", tmp_path)
