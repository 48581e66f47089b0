"""Images in another shape: foreign ones in that of a classifier's own, or a whole data set made smaller.

The centre is cut to the proportions of the new shape (a square for square images), resized bilinearly with antialiasing
and rounded to 8 bits; grey becomes RGB by repetition, RGB becomes grey as 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.errors import DataError

LUMA = (0.299, 0.587, 0.114)
BLOCK = 1024
"""Images converted at once, which bounds the float32 copies that a large read would need."""


def reshape(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """8-bit images [N, channels, height, width] in the shape (channels, height, width)."""
    return torch.cat([_reshape(block, shape) for block in images.split(BLOCK)])


def made_smaller(images: MemorySet, size: int) -> MemorySet:
    """The data set at `size` x `size` pixels; larger images than the published ones would show nothing more."""
    check_size(images.name, images.shape, size)
    channels, height, width = images.shape
    if (height, width) == (size, size):
        return images
    smaller = torch.empty(len(images.labels), channels, size, size, dtype=torch.uint8)
    for target, block in zip(smaller.split(BLOCK), images.images.split(BLOCK), strict=True):
        target.copy_(_reshape(block, (channels, size, size)))
    return MemorySet(images.name, images.classes, smaller, images.labels)


def check_size(name: str, shape: tuple[int, int, int], size: int) -> None:
    """Raise unless images of this shape can be made `size` x `size` without enlarging them."""
    _, height, width = shape
    side = min(height, width)
    if not 1 <= size <= side:
        what = "is not a number of pixels" if size < 1 else "would enlarge them"
        raise DataError(
            f"the images of {name} have {height}x{width} pixels, and size {size} {what}; choose 1 to {side}."
        )


def _reshape(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    channels, height, width = shape
    pixels = images.float()
    if pixels.shape[1] == 3 and channels == 1:
        pixels = torch.einsum("bchw,c->bhw", pixels, pixels.new_tensor(LUMA)).unsqueeze(1)
    if pixels.shape[2:] != (height, width):
        old_height, old_width = pixels.shape[2:]
        rows = max(1, min(old_height, round(old_width * height / width)))
        columns = max(1, min(old_width, round(old_height * width / height)))
        top, left = (old_height - rows) // 2, (old_width - columns) // 2
        pixels = pixels[:, :, top : top + rows, left : left + columns]
        pixels = F.interpolate(pixels, (height, width), mode="bilinear", antialias=True)
    return pixels.round().to(torch.uint8).expand(-1, channels, -1, -1).contiguous()
