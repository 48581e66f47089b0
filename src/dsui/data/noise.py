"""Images without content: every pixel independent and uniform in [0, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dsui.checks import check_at_least
from dsui.data.dataset import MemorySet

if TYPE_CHECKING:
    from dsui.data.dataset import ImageSet


def uniform_noise(count: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """[count, channels, height, width] noise images."""
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def noise_set(like: ImageSet, count: int = 10_000, seed: int = 0) -> MemorySet:
    """Noise as a data set of one class in the shape of `like`: 8-bit pixels, each of 0..255 equally likely.

    The paper's noise test uses 10,000 such images (Xie et al., DS-UI, Table 4), normalised like the data set's own.
    """
    check_at_least("count", count, 1)
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, *like.shape), dtype=torch.uint8, generator=generator)
    return MemorySet("noise", ("noise",), pixels, torch.zeros(count, dtype=torch.int64))
