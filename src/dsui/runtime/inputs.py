"""Images and features in the forms that users have them, as arrays that a model takes.

Arrays: uint8, or floats in [0, 1], which become round(255 x); [N, H, W] for grey, [N, H, W, C] or [N, C, H, W]. Files,
their bytes and Pillow images are cropped and resized as `folder:PATH` images are (`dsui.data.decode`).
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsui.backbones.preparation import Preparation
from dsui.data.decode import ImageError, as_seen, pixels, prepared, read_pixels

CHANNELS = (1, 3)
Item = TypeVar("Item")
Result = TypeVar("Result")


class ImageForm(NamedTuple):
    """What images a model takes, and how they are made of photographs."""

    channels: int
    size: int
    preparation: Preparation | None


def pixels_of_arrays(images: Any, channels: int | None = None) -> NDArray[np.uint8]:
    """uint8 [N, C, H, W] of an array; `channels` None means 1 or 3. Where both orders fit, [N, C, H, W] is assumed."""
    values = _channels_first(_as_array("images", images), CHANNELS if channels is None else (channels,))
    if len(values) == 0:
        raise ValueError("there are no images; give at least one.")
    return np.ascontiguousarray(_eight_bit(values))


def checked_features(features: Any, width: int) -> NDArray[np.float32]:
    """float32 [N, width] of an array [N, width], or of [width] for one."""
    values = _as_array("features", features)
    values = values[None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] != width or len(values) == 0:
        raise ValueError(f"the features have the shape {list(values.shape)}; this model takes [rows, {width}].")
    if values.dtype.kind != "f":
        raise ValueError(f"the features are {values.dtype}; convert them to floats.")
    if bad := int((~np.isfinite(values)).any(1).sum()):
        raise ValueError(f"{bad} of {len(values)} rows of features hold NaN or infinity; remove or correct them.")
    return values.astype(np.float32)


def pixels_of(image: Any, form: ImageForm) -> NDArray[np.uint8]:
    """[channels, size, size] of one file, its bytes, Pillow image or array; an ImageError where a file is none."""
    if isinstance(image, str | Path):
        return pixels_of_file(Path(image), form)
    if isinstance(image, bytes):
        return read_pixels(image, form.channels, form.size, form.preparation)
    if isinstance(image, Image.Image):
        return pixels(prepared(as_seen(image, form.channels), form.size, form.preparation))
    if not hasattr(image, "__array__"):
        raise ValueError(f"an image is {type(image).__name__}; give files, Pillow images, arrays or tensors.")
    one = pixels_of_arrays(np.asarray(image)[None], form.channels)
    check_size(one.shape, form.size)
    first: NDArray[np.uint8] = one[0]
    return first


def pixels_of_file(path: Path, form: ImageForm) -> NDArray[np.uint8]:
    """[channels, size, size], or an ImageError."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise ImageError("there is no such file") from error
    except OSError as error:
        raise ImageError(f"it cannot be opened ({error.strerror})") from error
    if stat.S_ISDIR(found.st_mode):
        raise ImageError("it is a folder; name the files in it")
    return read_pixels(path, form.channels, form.size, form.preparation)


def check_size(shape: tuple[int, ...], size: int) -> None:
    """Raise unless images of the shape [N, C, H, W] have the model's size."""
    height, width = shape[2:]
    if (height, width) != (size, size):
        raise ValueError(
            f"the images have {height}x{width} pixels and the model takes {size}x{size}; resize them, or give files or "
            "Pillow images, which are cropped and resized."
        )


def map_ahead(items: Iterable[Item], function: Callable[[Item], Result], window: int) -> Iterator[Result]:
    """`function` of every item, in order, computed by threads: images are decoded while others are predicted.

    At most `window` results wait to be used.
    """
    source = iter(items)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        waiting: deque[Future[Result]] = deque(pool.submit(function, item) for item in islice(source, window))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(function, item) for item in islice(source, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def _as_array(what: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the {what} cannot be read as numbers ({error}); give one array of equal shapes.") from error
    if array.dtype.kind not in "biufc":
        kind = "objects" if array.dtype.kind == "O" else "text"
        raise ValueError(f"the {what} cannot be read as numbers (they are {kind}); give one array of equal shapes.")
    return array


def _eight_bit(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind != "f":
        raise ValueError(f"the images are {values.dtype}; convert them to uint8 (0 to 255) or to floats in [0, 1].")
    if bad := int((~np.isfinite(values)).reshape(len(values), -1).any(1).sum()):
        raise ValueError(f"{bad} of {len(values)} images hold NaN or infinity; remove or correct them.")
    low, high = values.min(), values.max()
    if low < 0 or high > 1:
        raise ValueError(
            f"the images' floats run from {low:.4g} to {high:.4g} and must lie in [0, 1]; scale the pixels, and leave "
            "normalisation to the model."
        )
    levels: NDArray[np.uint8] = np.rint(values * 255).astype(np.uint8)
    return levels


def _channels_first(values: NDArray[Any], channels: tuple[int, ...]) -> NDArray[Any]:
    if values.ndim == 3 and 1 in channels:
        return values[:, None]
    if values.ndim == 4 and values.shape[1] in channels:
        return values
    if values.ndim == 4 and values.shape[3] in channels:
        return values.transpose(0, 3, 1, 2)
    grey = ", or [N, height, width] for grey" if 1 in channels else ""
    raise ValueError(
        f"the images have the shape {list(values.shape)}; with {' or '.join(map(str, channels))} as channels they need "
        f"[N, height, width, channels] or [N, channels, height, width]{grey}."
    )
