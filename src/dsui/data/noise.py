"""Images without content: every pixel independent and uniform in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor


def uniform_noise(count: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """[count, channels, height, width] noise images."""
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))
