"""From codes back to images: the last part of auto-encoders and generators.

    linear to 4 w x 2 x 2 - GN - LeakyReLU - (convT4x4/2 - GN - LeakyReLU) x 3 to 4 w, 2 w, w - convT4x4/2 - sigmoid

The images have 32 x 32 pixels in [0, 1]. This is the generator that open-set recognition has used since Neal et al.
(ECCV 2018), there with w = 128 and batch norm. GN is group norm over eight channels: no image sees its neighbours,
right and wrong codes do not share statistics, and averaged weights need no new statistics. `resize` reaches other sizes
by averages over areas; `Pixels` converts between such images and the inputs of a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE

SIDE = 32
"""Height and width of the decoded images."""
GROUP = 8
WIDEST = 128
"""The published w."""


class Decoder(nn.Module):
    """Codes [B, features] -> images [B, channels, 32, 32] in [0, 1]; `width` is w, a multiple of 8."""

    def __init__(self, features: int, channels: int, width: int = WIDEST) -> None:
        super().__init__()
        widths = (4 * width, 4 * width, 2 * width, width)
        self.start = nn.Sequential(
            nn.Linear(features, 4 * widths[0]),
            nn.Unflatten(1, (widths[0], 2, 2)),
            *_norm_and_activation(widths[0]),
        )
        doublings = [
            layer
            for inputs, outputs in pairwise(widths)
            for layer in (_doubling(inputs, outputs), *_norm_and_activation(outputs))
        ]
        self.layers = nn.Sequential(*doublings, _doubling(width, channels), nn.Sigmoid())

    def forward(self, codes: Tensor) -> Tensor:
        images: Tensor = self.layers(self.start(codes))
        return images


def decoder_width(features: int, share: int) -> int:
    """A w that suits a backbone: the number of its features divided by `share`, between 8 and the published 128."""
    return max(min(features // share, WIDEST) // GROUP, 1) * GROUP


class Pixels(nn.Module):
    """Converts between pixels in [0, 1] and the inputs of a network, which are standardised by channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def from_inputs(self, images: Tensor) -> Tensor:
        """Network inputs [B, channels, H, W] -> pixels"""
        return images * self.std + self.mean

    def to_inputs(self, pixels: Tensor) -> Tensor:
        """Pixels [B, channels, H, W] -> network inputs"""
        return (pixels - self.mean) / self.std


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """The mean over the area of each new pixel. [..., H, W] -> [..., height, width]

    It is two matrix products, whose gradients add up in a fixed order on a GPU; those of pooling and interpolation do
    not.
    """
    if images.shape[-2:] == (height, width):
        return images
    return _areas(images, height, -2) @ images @ _areas(images, width, -1).T


def _areas(images: Tensor, count: int, dim: int) -> Tensor:
    """The matrix [count, images.shape[dim]] that averages along `dim`; its rows sum to 1."""
    identity = torch.eye(images.shape[dim], dtype=images.dtype, device=images.device)
    return F.adaptive_avg_pool1d(identity, count).T


def _doubling(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)


def _norm_and_activation(width: int) -> tuple[nn.Module, nn.Module]:
    return nn.GroupNorm(width // GROUP, width), nn.LeakyReLU(SLOPE)
