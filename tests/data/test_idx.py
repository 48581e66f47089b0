"""MNIST and Fashion-MNIST loaders on idx files, plain and compressed."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dsui.data.idx import fashion_mnist, mnist
from dsui.errors import DataError
from tests.support.official_files import idx_bytes, random_pixels, write_idx

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_mnist_reads_plain_and_zipped_files_in_both_layouts(tmp_path: Path, folder: str, zipped: bool) -> None:
    pixels = random_pixels(3, 28, 28)
    write_idx(tmp_path / folder, "t10k", pixels, [7, 0, 9], zipped)
    images = mnist(tmp_path, "test")
    assert np.array_equal(images.images.numpy(), pixels[:, None])
    assert images.labels.tolist() == [7, 0, 9]


@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_mnist_names_its_garments(tmp_path: Path, folder: str) -> None:
    write_idx(tmp_path / folder, "train", random_pixels(1, 28, 28), [9])
    images = fashion_mnist(tmp_path, "train")
    assert images.classes[int(images.labels[0])] == "Ankle boot"


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mnist/train-images-idx3-ubyte.gz is missing; run `dsui data get mnist`"):
        mnist(tmp_path, "train")


FULL = idx_bytes(random_pixels(2, 28, 28))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read as idx"),
        (FULL[:-1], "announces 1568 bytes and only 1567 follow"),
        (FULL + b"x", "announces 1568 bytes and more follow"),
        (idx_bytes(random_pixels(1568)), "begins with 0x00000801"),
        (b"<!DOCTYPE html><html>", "begins with 0x3c21444f"),
        (struct.pack(">4I", 0x0803, *[2**32 - 1] * 3), "cannot be read as idx"),
        (idx_bytes(random_pixels(2, 8, 8)), "its images are 8x8"),
        (struct.pack(">4I", 0x0803, 10**6, 28, 28), "its header announces 784,000,000 bytes, more than 134,217,728"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_damaged_images_say_what_is_wrong(tmp_path: Path, content: bytes, why: str, zipped: bool) -> None:
    write_idx(tmp_path / "mnist", "train", random_pixels(2, 28, 28), [1, 2], zipped)
    path = tmp_path / "mnist" / ("train-images-idx3-ubyte.gz" if zipped else "train-images-idx3-ubyte")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match=f"{path.name} is damaged: .*({why})"):
        mnist(tmp_path, "train")


def test_a_broken_gzip_stream_is_damage(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", "train", random_pixels(2, 28, 28), [1, 2])
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="is damaged"):
        mnist(tmp_path, "train")


@pytest.mark.parametrize(("labels", "why"), [([1], "1 labels for 2 images"), ([1, 10], r"outside 0\.\.9")])
def test_wrong_labels_say_what_is_wrong(tmp_path: Path, labels: list[int], why: str) -> None:
    write_idx(tmp_path / "mnist", "train", random_pixels(2, 28, 28), labels)
    with pytest.raises(DataError, match=f"train-labels-idx1-ubyte.gz is damaged: .*{why}"):
        mnist(tmp_path, "train")
