"""Tiny ImageNet loader on a small copy of its folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsui.data.tiny_imagenet import tiny_imagenet
from dsui.errors import DataError
from tests.support.official_files import plain_jpeg, write_tiny_imagenet

if TYPE_CHECKING:
    from pathlib import Path


def test_labels_follow_the_ids_in_alphabetical_order(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    train = tiny_imagenet(tmp_path, "train")
    assert train.classes == ("n01443537", "n02124075", "n04067472")
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    # The goldfish, second in wnids.txt, was written with levels 40 and 60; a plain JPEG is exact.
    assert train.images[:, 0, 0, 0].tolist() == [40, 60, 0, 20, 80, 100]


def test_the_validation_images_are_the_test_split_and_grey_ones_become_colour(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    test = tiny_imagenet(tmp_path, "test")
    assert test.labels.tolist() == [1, 0, 2]
    assert test.images[:, :, 5, 5].tolist() == [[100] * 3, [101] * 3, [102] * 3]


@pytest.mark.parametrize(
    "lost", ["wnids.txt", "val/val_annotations.txt", "val/images/val_1.JPEG", "train/n01443537/images"]
)
def test_a_missing_part_is_named(tmp_path: Path, lost: str) -> None:
    write_tiny_imagenet(tmp_path)
    path = tmp_path / "tiny-imagenet-200" / lost
    path.rename(tmp_path / "away")
    with pytest.raises(DataError, match=f"{lost}.* is missing; run `dsui data get tiny-imagenet`"):
        tiny_imagenet(tmp_path, "train" if "train" in lost else "test")


def test_a_truncated_a_misshapen_and_an_unlisted_image_are_damage(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    folder = tmp_path / "tiny-imagenet-200" / "val"
    image, whole = folder / "images" / "val_0.JPEG", (folder / "images" / "val_0.JPEG").read_bytes()
    image.write_bytes(whole[:-200])
    with pytest.raises(DataError, match=r"val_0.JPEG is damaged: .*[Tt]runcated"):
        tiny_imagenet(tmp_path, "test")
    plain_jpeg(image, 0, side=32)
    with pytest.raises(DataError, match=r"val_0.JPEG is damaged: it is 32x32 pixels"):
        tiny_imagenet(tmp_path, "test")
    (folder / "val_annotations.txt").write_text("val_0.JPEG\tn00000000\n")
    with pytest.raises(DataError, match=r"val_annotations.txt is damaged: .*n00000000"):
        tiny_imagenet(tmp_path, "test")


@pytest.mark.parametrize(
    "name", ["../../elsewhere", "/etc", "n01443537/../n02124075", "n", "folder", "n1\x00", "n" + "1" * 999]
)
def test_an_id_that_leads_out_of_the_data_set_is_refused(tmp_path: Path, name: str) -> None:
    write_tiny_imagenet(tmp_path)
    with (tmp_path / "tiny-imagenet-200" / "wnids.txt").open("a") as stream:
        stream.write(f"{name}\n")
    with pytest.raises(DataError, match=r"wnids\.txt is damaged: the line .* is no WordNet id such as") as raised:
        tiny_imagenet(tmp_path, "train")
    assert len(str(raised.value)) < 400


def test_an_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    wnids = tmp_path / "tiny-imagenet-200" / "wnids.txt"
    wnids.write_text(wnids.read_text() * 2)
    with pytest.raises(DataError, match="it names a class twice"):
        tiny_imagenet(tmp_path, "train")


@pytest.mark.parametrize(
    "file", ["../../../train/n01443537/images/n01443537_0.JPEG", "/etc/passwd", "a/b.JPEG", "x.png", ""]
)
def test_a_validation_image_outside_its_folder_is_refused(tmp_path: Path, file: str) -> None:
    write_tiny_imagenet(tmp_path)
    with (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").open("a") as stream:
        stream.write(f"{file}\tn01443537\t0\t0\t9\t9\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt is damaged: the line .* names no (file|class) of"):
        tiny_imagenet(tmp_path, "test")
