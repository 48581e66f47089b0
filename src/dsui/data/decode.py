"""One image file as 8-bit pixels, as a person sees it.

The first frame of an animation is used. The image is turned as its EXIF data say, transparent parts become white, CMYK
and palettes become RGB. Grey deeper than 8 bits is scaled, never clipped: integers from 0..65535 and floats from 0..1,
or from the image's own smallest and largest value where these lie outside.
"""

from __future__ import annotations

import os
import stat
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

LARGEST_IMAGE = 89_478_485
"""Pixels; where Pillow begins to warn, a quarter of a gibibyte in RGB."""
UNREADABLE = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS"}
"""Pillow recognises the first five but cannot decode them, and it runs an external program for EPS."""
COMMON = {"JPEG", "PNG"}
BLOCK = 256
"""Files that one thread reads in a row."""


class ImageError(Exception):
    """Why a file cannot be used as an image; the caller, who knows the file and the remedy, completes the sentence."""


def extensions() -> frozenset[str]:
    """The file endings of images, in lower case and with the dot."""
    return frozenset(end for end, kind in Image.registered_extensions().items() if kind in _formats())


@cache
def _formats() -> tuple[str, ...]:
    """The formats that can be read, common ones first: Pillow tries them in this order on every file."""
    Image.init()
    return tuple(sorted(Image.OPEN.keys() - UNREADABLE, key=lambda kind: (kind not in COMMON, kind)))


class Header(NamedTuple):
    """The stored (width, height), and Pillow's mode, such as L for grey."""

    size: tuple[int, int]
    mode: str


def read_header(path: Path) -> Header:
    """The header of an image file; nothing is decoded. Not for use in threads, because it filters warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # _open refuses such images
        try:
            with _open(path) as image:
                return Header(image.size, image.mode)
        except Exception as error:
            raise _explained(error, path) from error


def decode_image(path: Path, channels: int) -> Image.Image:
    """The decoded image in mode L (1 channel) or RGB (3)."""
    try:
        with _open(path) as image:
            return as_seen(image, channels)
    except Exception as error:
        raise _explained(error, path) from error


def as_seen(image: Image.Image, channels: int) -> Image.Image:
    """The image upright, opaque and with 8 bits, in mode L (1 channel) or RGB (3)."""
    turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    upright = ImageOps.exif_transpose(image) if turned else image
    if upright.mode in {"I", "F"} or upright.mode.startswith("I;16"):
        upright = _eight_bit(upright)
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(white, upright.convert("RGBA"))
    upright.load()
    colour = upright if upright.mode == "RGB" else upright.convert("RGB")
    return colour if channels == 3 else colour.convert("L")


def central_square(image: Image.Image, size: int) -> Image.Image:
    """The central square, resized bilinearly with antialiasing: the shorter side resized and the centre cropped."""
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def pixels(image: Image.Image) -> NDArray[np.uint8]:
    """[channels, height, width] of an image in mode L or RGB."""
    values = np.array(image, dtype=np.uint8)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))


def read_all(
    files: Sequence[Path],
    read: Callable[[Path], NDArray[np.uint8]],
    shape: tuple[int, int, int],
    threads: int | None = None,
) -> Tensor:
    """uint8 [N, *shape]: `read` of every file, in as many threads as there are processors.

    Pillow decodes without holding Python's global lock. Files of a few kilobytes spend their time with the lock held,
    so that one thread reads them faster than several do.
    """
    images = np.empty((len(files), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for index in range(start, min(start + BLOCK, len(files))):
            images[index] = read(files[index])

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for _ in pool.map(fill, range(0, len(files), BLOCK)):
            pass
    return torch.from_numpy(images)


def _open(path: Path) -> Image.Image:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ImageError("it is not a file on a disk")
    if status.st_size == 0:
        raise ImageError("the file is empty")
    image = Image.open(path, formats=_formats())
    width, height = image.size
    if width * height > LARGEST_IMAGE:
        image.close()
        raise ImageError(f"its header announces {width} x {height} pixels, more than {LARGEST_IMAGE:,}")
    return image


def _explained(error: Exception, path: Path) -> ImageError:
    if isinstance(error, ImageError):
        return error
    if isinstance(error, UnidentifiedImageError):
        return ImageError(f"it is not an image although its name ends in {path.suffix}")
    return ImageError(f"{type(error).__name__}: {error}")


def _eight_bit(deep: Image.Image) -> Image.Image:
    values = np.asarray(deep, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ImageError("some of its pixels are not numbers")
    low, high = 0.0, 1.0 if deep.mode == "F" else 65535.0
    if values.min() < low or values.max() > high:
        low, high = values.min(), values.max()
    span = high - low or 1.0
    return Image.fromarray(np.rint((values - low) * (255 / span)).astype(np.uint8))
