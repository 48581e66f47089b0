"""Images in the forms that users have them, as 8-bit pixels [N, channels, height, width].

Arrays and tensors: uint8, or floats in [0, 1], which become round(255 x); [N, H, W] for grey, [N, H, W, C] or
[N, C, H, W]. Files and Pillow images are cropped and resized as `folder:PATH` images are (`dsui.data.decode`).
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dsui.backbones.preparation import Preparation
from dsui.data.decode import ImageError, as_seen, pixels, prepared, read_pixels

CHANNELS = (1, 3)
Item = TypeVar("Item")
Result = TypeVar("Result")


def from_arrays(images: Any, channels: int | None = None) -> Tensor:
    """uint8 [N, C, H, W] of an array or tensor; `channels` None means 1 or 3. Where both orders fit, [N, C, H, W] is
    assumed."""
    try:
        # torch cannot share an array that is read-only or has negative strides
        array = None if isinstance(images, Tensor) else np.require(images, requirements=["C", "W"])
        values = images.detach().cpu() if array is None else torch.from_numpy(array)
    except TypeError as error:
        raise ValueError(f"the images cannot be read as numbers ({error}); give one array of equal shapes.") from error
    whole = _channels_first(values, CHANNELS if channels is None else (channels,))
    if len(whole) == 0:
        raise ValueError("there are no images; give at least one.")
    return _eight_bit(whole).contiguous()


def from_features(features: Any, width: int) -> Tensor:
    """float32 [N, width, 1, 1] of an array or tensor [N, width], or of [width] for one."""
    try:
        values = torch.as_tensor(features).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the features cannot be read as numbers ({error}); give one array of floats.") from error
    values = values[None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] != width or len(values) == 0:
        raise ValueError(f"the features have the shape {list(values.shape)}; this model takes [rows, {width}].")
    if not values.is_floating_point():
        raise ValueError(f"the features are {str(values.dtype).removeprefix('torch.')}; convert them to floats.")
    if bad := int((~values.isfinite()).any(1).sum()):
        raise ValueError(f"{bad} of {len(values)} rows of features hold NaN or infinity; remove or correct them.")
    return values.float()[:, :, None, None]


def from_any(image: Any, channels: int, size: int, preparation: Preparation | None = None) -> NDArray[np.uint8]:
    """[channels, size, size] of one file, Pillow image, array or tensor."""
    if isinstance(image, str | Path):
        return from_file(Path(image), channels, size, preparation)
    if isinstance(image, Image.Image):
        return pixels(prepared(as_seen(image, channels), size, preparation))
    if not isinstance(image, np.ndarray | Tensor):
        raise ValueError(f"an image is {type(image).__name__}; give files, Pillow images, arrays or tensors.")
    one = from_arrays(image[None], channels)
    check_size(one, size)
    return one[0].numpy()


def from_file(path: Path, channels: int, size: int, preparation: Preparation | None = None) -> NDArray[np.uint8]:
    """[channels, size, size], or an ImageError."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise ImageError("there is no such file") from error
    except OSError as error:
        raise ImageError(f"it cannot be opened ({error.strerror})") from error
    if stat.S_ISDIR(found.st_mode):
        raise ImageError("it is a folder; name the files in it")
    return read_pixels(path, channels, size, preparation)


def check_size(images: Tensor, size: int) -> None:
    height, width = images.shape[2:]
    if (height, width) != (size, size):
        raise ValueError(
            f"the images have {height}x{width} pixels and the model takes {size}x{size}; resize them, or give files or "
            "Pillow images, which are cropped and resized."
        )


def _eight_bit(values: Tensor) -> Tensor:
    if values.dtype == torch.uint8:
        return values
    if not values.is_floating_point():
        kind = str(values.dtype).removeprefix("torch.")
        raise ValueError(f"the images are {kind}; convert them to uint8 (0 to 255) or to floats in [0, 1].")
    if bad := int((~values.isfinite()).flatten(1).any(1).sum()):
        raise ValueError(f"{bad} of {len(values)} images hold NaN or infinity; remove or correct them.")
    low, high = values.aminmax()
    if low < 0 or high > 1:
        raise ValueError(
            f"the images' floats run from {low:.4g} to {high:.4g} and must lie in [0, 1]; scale the pixels, and leave "
            "normalisation to the model."
        )
    return (values * 255).round().to(torch.uint8)


def _channels_first(values: Tensor, channels: tuple[int, ...]) -> Tensor:
    if values.ndim == 3 and 1 in channels:
        return values[:, None]
    if values.ndim == 4 and values.shape[1] in channels:
        return values
    if values.ndim == 4 and values.shape[3] in channels:
        return values.permute(0, 3, 1, 2)
    grey = ", or [N, height, width] for grey" if 1 in channels else ""
    raise ValueError(
        f"the images have the shape {list(values.shape)}; with {' or '.join(map(str, channels))} as channels they need "
        f"[N, height, width, channels] or [N, channels, height, width]{grey}."
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
