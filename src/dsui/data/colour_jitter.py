"""Colour jitter: brightness, contrast and saturation of each image changed at random.

    x' = b (m + c (g + s (x - g) - m)), cut to 0 .. 255        b, c, s uniform in 1 - strength .. 1 + strength

x is a pixel, g its grey value 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601) and m the mean of g over the image. The order
is fixed, and values are cut once, at the end; torchvision's ColorJitter shuffles the three and cuts after each. The hue
stays.
"""

from __future__ import annotations

import torch
from torch import Tensor

DRAWS = 3
"""Uniform numbers for each image."""
RED, GREEN, BLUE = 0.299, 0.587, 0.114


def jittered(images: Tensor, uniform: Tensor, strength: float) -> Tensor:
    """Float images [B, C, H, W] in 0 .. 255, each by its own draw of `uniform` [DRAWS, B] in [0, 1)."""
    brightness, contrast, saturation = (1 + strength * (2 * uniform - 1))[..., None, None, None]
    grey = images
    if images.shape[1] == 3:
        red, green, blue = images.split(1, 1)
        grey = RED * red + GREEN * green + BLUE * blue
    # A sum of integers is the same in every order, and so is the image in every batch.
    total = grey.round().to(torch.int32).sum((1, 2, 3), keepdim=True, dtype=torch.int64)
    mean = total.to(images.dtype) / (grey.shape[2] * grey.shape[3])
    vivid = grey + saturation * (images - grey)
    changed: Tensor = brightness * (mean + contrast * (vivid - mean))
    return changed.clamp(0, 255)
