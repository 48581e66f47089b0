"""What becomes of a photograph: the centre, or all of it between bars, at the speed of the decoder; and long strips.

What the own preparations of libraries give is compared where they are loaded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image
from sklearn.datasets import load_sample_image

from dsui.backbones import preparation as preparations
from dsui.backbones.preparation import GREY, Fit, Preparation
from dsui.data import decode
from dsui.data.decode import central_square, decode_image, pixels, prepared, read_pixels

OWN: tuple[Fit, ...] = ("centre", "letterbox")


def preparation(size: int, fit: Fit) -> Preparation:
    return Preparation(size=size, edge=size, fit=fit)


def photograph(path: Path, width: int, height: int, orientation: int = 1) -> Path:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(load_sample_image("flower.jpg")).resize((width, height)).save(path, quality=90, exif=exif)
    return path


@pytest.mark.parametrize(("width", "height"), [(40, 24), (24, 40), (8, 8), (41, 24)])
def test_the_centre_is_that_of_the_central_square(width: int, height: int) -> None:
    image = Image.effect_noise((width, height), 60).convert("RGB")
    found = pixels(preparation(8, "centre").apply(image)).astype(int)
    if (width - height) % 2 == 0:
        np.testing.assert_array_equal(found, pixels(central_square(image, 8)))
    whole = pixels(preparation(min(width, height), "centre").apply(image))
    np.testing.assert_array_equal(whole, pixels(central_square(image, min(width, height))))


@pytest.mark.parametrize(
    ("width", "height", "bars"), [(40, 20, (4, 0)), (20, 40, (0, 4)), (16, 16, (0, 0)), (160, 20, (7, 0))]
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_letterbox_holds_the_whole_image_between_grey_bars(
    width: int, height: int, bars: tuple[int, int], mode: str
) -> None:
    image = Image.new(mode, (width, height), "white")
    found = pixels(preparation(16, "letterbox").apply(image))
    above, left = bars
    inside = np.zeros((16, 16), dtype=bool)
    inside[above : 16 - above, left : 16 - left] = True
    assert found.shape == (3 if mode == "RGB" else 1, 16, 16)
    assert (found[:, inside] == 255).all()
    assert (found[:, ~inside] == GREY).all()


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("fit", OWN)
@pytest.mark.parametrize(("width", "height"), [(960, 640), (957, 643)])
def test_a_large_jpeg_is_decoded_small_and_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, height: int, fit: Fit, orientation: int
) -> None:
    file, decoded = photograph(tmp_path / "a.jpg", width, height, orientation), list[tuple[int, int]]()
    seen = decode.as_seen

    def noted(image: Image.Image, channels: int) -> Image.Image:
        decoded.append(image.size)
        return seen(image, channels)

    monkeypatch.setattr(decode, "as_seen", noted)
    way = preparation(64, fit)
    found = read_pixels(file, 3, 64, way).astype(int)
    whole = pixels(prepared(decode_image(file, 3), 64, way)).astype(int)
    exact = width % 8 == height % 8 == 0
    factor = 1 if orientation != 1 and not exact else 4
    assert decoded[0] == (-(-width // factor), -(-height // factor))
    assert np.abs(found - whole).mean() < 1  # of 255; 0.3 when written: the decoder's mean of a block is another filter
    assert np.abs(found - whole).max() < 24


@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_what_a_library_prepares_is_decoded_whole(tmp_path: Path, fit: Fit) -> None:
    file, way = photograph(tmp_path / "a.jpg", 960, 640), preparation(64, fit)
    np.testing.assert_array_equal(read_pixels(file, 3, 64, way), pixels(prepared(decode_image(file, 3), 64, way)))


@pytest.mark.parametrize("fit", OWN)
def test_a_large_png_and_a_small_jpeg_are_read_as_ever(tmp_path: Path, fit: Fit) -> None:
    way = preparation(64, fit)
    small = photograph(tmp_path / "small.jpg", 100, 90)
    large = tmp_path / "large.png"
    Image.fromarray(load_sample_image("flower.jpg")).save(large)
    for file in (small, large):
        np.testing.assert_array_equal(read_pixels(file, 3, 64, way), pixels(prepared(decode_image(file, 3), 64, way)))


@pytest.mark.parametrize("fit", OWN)
def test_facts_come_back(fit: Fit) -> None:
    way = Preparation(size=64, edge=64, fit=fit, mean=(0.5,), std=(0.5,))
    assert Preparation.of(64, (0.5,), (0.5,), way.facts()) == way
    assert pixels(way.apply(Image.new("RGB", (900, 1)))).shape == (3, 64, 64)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("shape", [(300, 411), (1300, 97)])
def test_a_long_strip_gives_the_same_pixels_without_resizing_all_of_it(
    monkeypatch: pytest.MonkeyPatch, interpolation: str, shape: tuple[int, int]
) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    prepare = Preparation(size=56, edge=64, interpolation=interpolation)
    whole = np.asarray(prepare.apply(noise)).astype(int)
    monkeypatch.setattr(preparations, "LARGEST_RESIZED", 0)
    part = np.asarray(prepare.apply(noise)).astype(int)
    assert abs(whole - part).max() <= 1  # one rounding to 8 bits
    assert (whole != part).mean() < 0.005  # 0.0014 at most when written


def test_a_strip_whose_resized_form_would_fill_the_memory_is_prepared() -> None:
    strip = Image.new("L", (1, 5_000_000), 7)  # 256 x 1,280,000,000 pixels at the edge of 256
    assert Preparation(size=224, edge=256).apply(strip).getextrema() == (7, 7)
