"""Random resized crops (Szegedy et al., CVPR 2015): a part of random size and shape, enlarged to the whole image.

    area = smallest .. 1 of the image, log(width / height) = log 3/4 .. log 4/3, both uniform; then a uniform place

A shape that does not fit into the image is never drawn: with the area a as a share, the range of width / height is cut
to a .. 1 / a. torchvision draws again instead, up to ten times. Pixels are interpolated bilinearly.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

NARROWEST = 3 / 4
"""Width over height, and the other way round."""
DRAWS = 4
"""Uniform numbers for each crop."""


def boxes(uniform: Tensor, smallest: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[B] left, top, width and height of each crop as shares of the image, from `uniform` [DRAWS, B] in [0, 1)."""
    area = smallest + (1 - smallest) * uniform[0]
    limit = area.log().neg().clamp(max=-math.log(NARROWEST))
    shape = ((2 * uniform[1] - 1) * limit / 2).exp()
    side = area.sqrt()
    width, height = (side * shape).clamp(max=1), (side / shape).clamp(max=1)
    return (1 - width) * uniform[2], (1 - height) * uniform[3], width, height


def cropped(images: Tensor, uniform: Tensor, smallest: float, mirrored: Tensor) -> Tensor:
    """Float images [B, C, H, W], each cropped by its own draw, and mirrored where `mirrored` [B] is true."""
    left, top, width, height = boxes(uniform, smallest)
    # grid_sample counts from -1 at one edge of the image to 1 at the other; a negative width mirrors.
    across, down = torch.where(mirrored, -width, width), height
    zero = torch.zeros_like(across)
    maps = torch.stack([across, zero, 2 * left + width - 1, zero, down, 2 * top + height - 1], 1).view(-1, 2, 3)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
