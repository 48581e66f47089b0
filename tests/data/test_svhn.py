"""SVHN loader on MATLAB 5 files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dsui.data.svhn import svhn
from dsui.errors import DataError
from tests.support.official_files import random_pixels, write_svhn

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def test_pixels_become_channels_first_and_label_ten_the_digit_zero(tmp_path: Path) -> None:
    pixels = random_pixels(32, 32, 3, 3)
    write_svhn(tmp_path / "train_32x32.mat", pixels, [1, 10, 9])
    images = svhn(tmp_path, "train")
    assert images.labels.tolist() == [1, 0, 9]
    assert images.classes == tuple("0123456789")
    assert np.array_equal(images.images[2, 1].numpy(), pixels[:, :, 1, 2])


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test_32x32\.mat is missing; run `dsui data get svhn`"):
        svhn(tmp_path, "test")


@pytest.mark.parametrize(
    ("pixels", "labels", "why"),
    [
        (random_pixels(28, 28, 3, 2), [1, 2], r"X is uint8 \[28, 28, 3, 2\]"),
        (np.zeros((32, 32, 3, 2)), [1, 2], "X is float64"),
        (random_pixels(32, 32, 3, 2), [1], "2 images and 1 labels"),
        (random_pixels(32, 32, 3, 2), [0, 1], r"outside 1\.\.10"),
    ],
)
def test_wrong_content_says_what_is_wrong(tmp_path: Path, pixels: NDArray[Any], labels: list[int], why: str) -> None:
    write_svhn(tmp_path / "test_32x32.mat", pixels, labels)
    with pytest.raises(DataError, match=why):
        svhn(tmp_path, "test")


@pytest.mark.parametrize("kept", [0, 100, 2000])
def test_a_truncated_file_is_damaged(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "test_32x32.mat"
    write_svhn(path, random_pixels(32, 32, 3, 2), [1, 2])
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"test_32x32\.mat is damaged"):
        svhn(tmp_path, "test")
