"""Images in every form a user may hold them in, and sentences for those that cannot be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data.decode import ImageError
from dsui.data.folder import folder_set
from dsui.deploy.inputs import as_array, from_arrays
from dsui.runtime.inputs import ImageForm, check_size, map_ahead, pixels_of, pixels_of_file

COLOUR = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
GREY = COLOUR[:, :1]


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        lambda x: x.transpose(0, 2, 3, 1),
        lambda x: x / 255,
        lambda x: (x / 255).astype(np.float32),
        lambda x: (x / 255).astype(np.float16),
        torch.from_numpy,
        lambda x: torch.from_numpy(x).permute(0, 2, 3, 1).double() / 255,
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.frombuffer(x.tobytes(), np.uint8).reshape(x.shape),  # read-only
        lambda x: torch.from_numpy(x / 255).requires_grad_(),
    ],
)
@pytest.mark.parametrize("images", [COLOUR, GREY])
def test_layout_and_type_of_an_array_do_not_matter(form: Any, images: Any) -> None:
    pixels = from_arrays(form(images))
    assert pixels.dtype == torch.uint8
    assert np.array_equal(pixels, images)


def test_floats_become_the_nearest_of_256_levels() -> None:
    levels = np.array([[[0, 0.49, 0.51, 126.4, 126.6, 254.6]]]) / 255
    assert from_arrays(levels).flatten().tolist() == [0, 0, 1, 126, 127, 255]


def test_grey_images_need_no_channel() -> None:
    assert np.array_equal(from_arrays(GREY[:, 0]), GREY)
    assert np.array_equal(from_arrays(GREY[:, 0], 1), GREY)


def test_images_that_could_be_read_both_ways_have_their_channels_first() -> None:
    small = COLOUR[:, :, :3, :3]
    assert np.array_equal(from_arrays(small, 3), small)


@pytest.mark.parametrize(
    ("images", "channels", "sentence"),
    [
        (COLOUR[0], 3, r"shape \[3, 8, 8\]; with 3 as channels they need \[N, height, width, channels\] or"),
        (np.zeros((5, 8, 8, 4), np.uint8), None, r"shape \[5, 8, 8, 4\]; with 1 or 3 as channels .*, or \[N, height"),
        (COLOUR, 1, r"shape \[5, 3, 8, 8\]; with 1 as channels"),
        (GREY[:, 0], 3, r"shape \[5, 8, 8\]; with 3 as channels"),
        (np.zeros((5, 64)), None, r"shape \[5, 64\]"),
        (np.float64(1), None, r"shape \[\]"),
        (COLOUR.astype(np.int64), None, r"are int64; convert them to uint8 \(0 to 255\) or to floats in \[0, 1\]"),
        (COLOUR > 3, None, "are bool; convert"),
        (COLOUR.astype(np.uint16), None, "are uint16; convert"),
        (GREY / 16, None, r"floats run from 0 to 15\.\d+ and must lie in \[0, 1\]; scale the pixels, and leave norm"),
        (GREY / 255 - 0.5, None, r"floats run from -0\.5 to 0\.5"),
        (
            np.where(np.arange(5).reshape(5, 1, 1, 1) < 2, np.nan, GREY / 255),
            None,
            "2 of 5 images hold NaN or infinity",
        ),
        (np.full((5, 8, 8), np.inf), None, "5 of 5 images hold NaN or infinity"),
        (COLOUR[:0], None, "there are no images; give at least one"),
        (np.array([None, "a"]), None, "cannot be read as numbers"),
    ],
)
def test_each_unusable_array_is_told(images: Any, channels: int | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as mistake:
        from_arrays(images, channels)
    assert "\n" not in str(mistake.value)


def test_arrays_of_another_size_are_told_and_not_resized() -> None:
    check_size((1, 3, 8, 8), 8)
    with pytest.raises(ValueError, match=r"have 8x9 pixels and the model takes 8x8; resize them, or give files or"):
        check_size((1, 3, 8, 9), 8)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_file_a_picture_and_the_training_images_are_the_same_pixels(tmp_path: Path, channels: int) -> None:
    file = tmp_path / "train" / "a" / "1.png"
    file.parent.mkdir(parents=True)
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 31, 4), dtype=np.uint8), "RGBA")
    picture.save(file)
    trained_on = folder_set(tmp_path, "train", 16, channels).read(torch.tensor([0]))[0]
    for image in (file, str(file), file.read_bytes(), picture):
        assert np.array_equal(pixels_of(image, ImageForm(channels, 16, None)), trained_on)
    assert np.array_equal(pixels_of(as_array(trained_on), ImageForm(channels, 16, None)), trained_on)


def test_files_that_are_none_say_why(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("no image")
    for path, reason in {
        tmp_path / "absent.png": "there is no such file",
        tmp_path: "it is a folder",
        tmp_path / ("long" * 100): "it cannot be opened .File name too long",
        tmp_path / "empty.png" / "1.png": "it cannot be opened .Not a directory",
        tmp_path / "empty.png": "the file is empty",
        tmp_path / "text.png": "it is not an image although its name ends in .png",
    }.items():
        with pytest.raises(ImageError, match=reason):
            pixels_of_file(path, ImageForm(3, 16, None))
    with pytest.raises(ValueError, match="an image is int; give files, Pillow images, arrays or tensors"):
        pixels_of(3, ImageForm(3, 16, None))


def test_results_keep_the_order_of_their_items_though_threads_do_not() -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    assert list(map_ahead(range(100), slow_first, 10)) == [item * item for item in range(100)]
    assert list(map_ahead([], slow_first, 10)) == []


def test_no_more_items_are_taken_than_the_window_allows() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(1000):
            taken += 1
            yield item

    for used, _ in enumerate(map_ahead(items(), str, 7), 1):
        assert taken <= used + 7
    assert taken == 1000


def test_an_error_comes_out_where_its_item_stood_and_ends_the_threads() -> None:
    before = threading.active_count()
    results = map_ahead([1, 2, 0, 4], lambda item: 1 / item, 4)
    assert [next(results), next(results)] == [1, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert threading.active_count() == before


def test_leaving_early_ends_the_threads() -> None:
    before = threading.active_count()
    results = map_ahead(range(1000), str, 50)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
