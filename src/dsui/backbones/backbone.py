"""Networks that turn images into features, and what they share.

Every backbone is followed by a head (`dsui.head`), with or without the paper's neck (`dsui.backbones.neck`)
between them. Activations are LeakyReLU(0.2), as in Xie et al.'s DS-UI. Batch norm starts at the identity;
convolutions start Kaiming-normal over the fan out, with the gain of that LeakyReLU:
std = sqrt(2 / (1.04 k^2 outputs)) for a k x k convolution, and biases, where there are any, at zero.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

SLOPE = 0.2


class Backbone(nn.Module):
    """Images [B, channels, H, W] -> features [B, out_features]."""

    out_features: int
    smallest_side: ClassVar[int] = 1
    """Images need at least so many pixels in height and width."""


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the size of the image at stride 1, initialised as stated above."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias)
    nn.init.kaiming_normal_(layer.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
