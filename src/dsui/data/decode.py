"""One image file as 8-bit pixels, as a person sees it.

Of an animation the first frame; turned as its EXIF data say; what is transparent shows white; CMYK and palettes become
RGB. Grey deeper than 8 bits is scaled, never clipped: integers from 0..65535 and floats from 0..1, or from the image's
own smallest and largest value where these lie outside. `square` cuts out the central square and resizes it bilinearly
with antialiasing, which is the shorter side resized and the centre cropped.
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

LARGEST_IMAGE = 89_478_485  # pixels; where Pillow begins to warn, a quarter of a gibibyte in RGB
# Pillow only recognises the first five, and hands EPS to an external program.
UNREADABLE = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS"}
COMMON = {"JPEG", "PNG"}
BLOCK = 256


class ImageError(Exception):
    """Why a file cannot be used as an image; whoever knows the file and the remedy makes the sentence."""


def extensions() -> frozenset[str]:
    """The file endings of images, in lower case and with the dot."""
    return frozenset(end for end, kind in Image.registered_extensions().items() if kind in _formats())


@cache
def _formats() -> tuple[str, ...]:
    """The common ones first: Pillow tries them in this order on every file."""
    Image.init()
    return tuple(sorted(Image.OPEN.keys() - UNREADABLE, key=lambda kind: (kind not in COMMON, kind)))


class Header(NamedTuple):
    """(width, height) and Pillow's mode, such as L for grey, as stored."""

    size: tuple[int, int]
    mode: str


def header(path: Path) -> Header:
    """What a file says of its image, none of which is decoded. Not for use in threads: it filters warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # _open refuses such images
        try:
            with _open(path) as image:
                return Header(image.size, image.mode)
        except Exception as error:
            raise _explained(error, path) from error


def picture(path: Path, channels: int) -> Image.Image:
    """The decoded image in mode L (1 channel) or RGB (3)."""
    try:
        with _open(path) as image:
            return as_seen(image, channels)
    except Exception as error:
        raise _explained(error, path) from error


def as_seen(image: Image.Image, channels: int) -> Image.Image:
    """Upright, opaque and of 8 bits, in mode L (1 channel) or RGB (3)."""
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


def square(image: Image.Image, size: int) -> Image.Image:
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

    Pillow decodes without holding Python's lock. Files of a few kilobytes spend their time with the lock held, and are
    read faster by one thread than by several.
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
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ImageError("it is no file on a disk")
    if found.st_size == 0:
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
        return ImageError(f"it is no image although its name ends in {path.suffix}")
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
