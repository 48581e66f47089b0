"""One image file as 8-bit pixels, as a person sees it. Pillow and numpy are all it needs.

The first frame of an animation is used. The image is turned as its EXIF data say, transparent parts become white, CMYK
and palettes become RGB. Grey deeper than 8 bits is scaled, never clipped: integers from 0..65535 and floats from 0..1,
or from the image's own smallest and largest value where these lie outside.

A small file may hold a large image, so memory and time have limits. An image has at most LARGEST_IMAGE pixels, all
threads together work on at most IN_WORK pixels at once, and an image is converted in strips. A thread that decodes
cannot be stopped, so there is no limit in seconds. Instead, the pixels bound the time: an image of a format that Pillow
decodes slowly has at most LARGEST_SLOW of them, and a JPEG, which may go over its pixels many times, MOST_PASSED.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.regular_file import open_regular, read_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dsui.backbones.preparation import Extent, Preparation

LARGEST_IMAGE = 89_478_485
"""Pixels; where Pillow begins to warn, a quarter of a gibibyte in RGB."""
IN_WORK = 2 * LARGEST_IMAGE
"""Pixels; about 2 GB of memory, because `as_seen` takes 8 to 11 bytes for each, and 4 more if an image is turned."""
LARGEST_FILE = 1 << 30
"""Bytes; the largest image without compression, at 16 bits for each of four channels, has 0.7 GB."""
FAST = {"AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "MPO", "PCX", "PNG", "PPM", "SGI", "TGA", "TIFF", "WEBP"}
"""The formats that Pillow decodes in less than 0.15 s for a million pixels."""
LARGEST_SLOW = 1 << 24
"""Pixels of the others: DDS takes up to 5 s for a million, QOI 3 s, JPEG 2000 1.2 s."""
MOST_PASSED = 20 * LARGEST_IMAGE
"""Pixels times scans of a JPEG; progressive files have about 10 scans."""
SCAN_HEADER = 8
"""Bytes at the beginning of a scan, at least."""
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""What ends the pixels of a scan: two bytes that do not occur among them."""
START_OF_SCAN, END_OF_IMAGE, WITHOUT_LENGTH = 0xDA, 0xD9, {0x01, 0xD8}
STRIP = 1 << 20
"""Pixels that are converted at once."""
UNREADABLE = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS"}
"""Pillow recognises the first five but cannot decode them, and it runs an external program for EPS."""
COMMON = {"JPEG", "PNG"}


class ImageError(DsuiError):
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


class PixelBudget:
    """Lets threads work on `most` pixels at once. A larger image waits until it is alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.renew()

    def renew(self) -> None:
        """Forget who works: in a forked process none of the others' threads exist."""
        self._free, self._changed = self._most, Condition()

    @contextmanager
    def taking(self, pixels: int) -> Iterator[None]:
        share, changed = min(pixels, self._most), self._changed
        with changed:
            changed.wait_for(lambda: self._free >= share)
            self._free -= share
        try:
            yield
        finally:
            with changed:
                self._free += share
                changed.notify_all()


BUDGET = PixelBudget(IN_WORK)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BUDGET.renew)


def read_header(path: Path) -> Header:
    """The header of an image file; nothing is decoded. Not for use in threads, because it filters warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # _opened refuses such images
        try:
            with _opened(path) as image:
                return Header(image.size, image.mode)
        except Exception as error:
            raise _explained(error, path) from error


def stored_size(content: bytes) -> tuple[int, int]:
    """(width, height) by the header of an image file's bytes; nothing is decoded. It may be used in threads."""
    try:
        with _opened(content) as image:
            return image.size
    except Exception as error:
        raise _explained(error, content) from error


def decode_image(file: Path | bytes, channels: int) -> Image.Image:
    """The decoded image in mode L (1 channel) or RGB (3), of a file or of the bytes of one."""
    try:
        with _opened(file) as image:
            return as_seen(image, channels)
    except Exception as error:
        raise _explained(error, file) from error


def read_pixels(file: Path | bytes, channels: int, size: int, preparation: Preparation | None) -> NDArray[np.uint8]:
    """[channels, size, size] of a file or of its bytes; what a network is trained on and what it predicts from."""
    if preparation is None:
        return pixels(central_square(decode_image(file, channels), size))
    try:
        with _opened(file) as image:
            extent = _reduced(image, preparation)
            return pixels(preparation.apply(as_seen(image, channels), extent))
    except Exception as error:
        raise _explained(error, file) from error


def as_seen(image: Image.Image, channels: int) -> Image.Image:
    """The image upright, opaque and with 8 bits, in mode L (1 channel) or RGB (3)."""
    with BUDGET.taking(image.width * image.height):
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
        upright = ImageOps.exif_transpose(image) if turned else image
        if upright.mode in {"I", "F"} or upright.mode.startswith("I;16"):
            upright = _eight_bit(upright)
        if upright.has_transparency_data:
            upright = _on_white(upright)
        upright.load()
        colour = upright if upright.mode == "RGB" else upright.convert("RGB")
        return colour if channels == 3 else colour.convert("L")


def central_square(image: Image.Image, size: int) -> Image.Image:
    """The central square, resized bilinearly with antialiasing: the shorter side resized and the centre cropped."""
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def prepared(image: Image.Image, size: int, preparation: Preparation | None) -> Image.Image:
    """[size, size], as a pretrained network wants it or else by `central_square`."""
    return central_square(image, size) if preparation is None else preparation.apply(image)


def pixels(image: Image.Image) -> NDArray[np.uint8]:
    """[channels, height, width] of an image in mode L or RGB."""
    values = np.array(image, dtype=np.uint8)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))


@contextmanager
def _opened(file: Path | bytes) -> Iterator[Image.Image]:
    with BytesIO(file) if isinstance(file, bytes) else open_regular(file, LARGEST_FILE) as stream:
        if not stream.read(1):
            raise ImageError("the file is empty")
        stream.seek(0)
        with Image.open(stream, formats=_formats()) as image:
            width, height = image.size
            largest = LARGEST_IMAGE if image.format in FAST else LARGEST_SLOW
            if width * height > largest:
                raise ImageError(f"its header announces {width} x {height} pixels, more than {largest:,}")
            if image.format == "JPEG":
                _check_scans(file, width * height)
            yield image


def _reduced(image: Image.Image, preparation: Preparation) -> Extent | None:
    """Let a JPEG be decoded as small as it may be to be prepared; the part of it that will be picture, or None for all.

    A turned image is reduced only if nothing beside the picture would be turned with it.
    """
    if not isinstance(image, JpegImageFile):
        return None
    width, height = image.size
    is_turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    for factor in preparation.factors(width, height):
        if not is_turned or width % factor == height % factor == 0:
            image.draft(None, (width // factor, height // factor))
            return None if is_turned else (width / factor, height / factor)
    return None


def _check_scans(file: Path | bytes, size: int) -> None:
    """The file is read for this only where its bytes are enough for too many scans."""
    length = len(file) if isinstance(file, bytes) else file.stat().st_size
    if size * (length // SCAN_HEADER) <= MOST_PASSED:
        return
    content, scans, at = file if isinstance(file, bytes) else read_regular(file, LARGEST_FILE), 0, 2
    while (found := MARKER.search(content, at)) and (marker := content[found.end() - 1]) != END_OF_IMAGE:
        scans, at = scans + (marker == START_OF_SCAN), found.end()
        if marker not in WITHOUT_LENGTH:
            at += int.from_bytes(content[at : at + 2], "big")
        if size * scans > MOST_PASSED:
            raise ImageError(f"it is a JPEG of {size:,} pixels in {scans:,} scans or more, which takes too long")


def _explained(error: Exception, file: Path | bytes) -> ImageError:
    if isinstance(error, ImageError):
        return error
    if isinstance(error, UnidentifiedImageError):
        named = f" although its name ends in {file.suffix}" if isinstance(file, Path) else ""
        return ImageError(f"it is not an image{named}")
    if isinstance(error, OSError) and error.errno:
        return ImageError(error.strerror)
    return ImageError(f"it cannot be decoded: {shorten(error)}")


def _strips(width: int, height: int) -> Iterator[tuple[int, int]]:
    rows = max(1, STRIP // max(width, 1))
    return ((top, min(top + rows, height)) for top in range(0, height, rows))


def _on_white(image: Image.Image) -> Image.Image:
    opaque = Image.new("RGB", image.size)
    image.load()
    for top, bottom in _strips(*image.size):
        part = image.crop((0, top, image.width, bottom)).convert("RGBA")
        white = Image.new("RGBA", part.size, "white")
        opaque.paste(Image.alpha_composite(white, part).convert("RGB"), (0, top))
    return opaque


def _eight_bit(deep: Image.Image) -> Image.Image:
    values = np.asarray(deep)
    low, high = (float(bound) for bound in (values.min(), values.max()))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ImageError("some of its pixels are not numbers")
    if low >= 0 and high <= (most := 1.0 if deep.mode == "F" else 65535.0):
        low, high = 0.0, most
    span = high - low or 1.0
    scaled = np.empty(values.shape, dtype=np.uint8)
    for top, bottom in _strips(*deep.size):
        scaled[top:bottom] = np.rint((values[top:bottom].astype(np.float64) - low) * (255 / span))
    return Image.fromarray(scaled)
