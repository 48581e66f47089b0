"""A small convolutional net for small images: three 3x3 convolutions, then the mean over positions.

Each convolution is followed by batch norm and LeakyReLU(0.2); the second and third halve the image.
A map that is larger than 8x8 after the first is max-pooled by two until it is not (28x28 to 7x7), so that the last
features see most of the image.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE, Backbone, convolution

LARGEST_SIDE = 8


class SmallNet(Backbone):
    """[B, channels, H, W] -> [B, 4 * width] features, initialised as `dsui.backbones.backbone` says."""

    def __init__(self, channels: int = 1, width: int = 32) -> None:
        super().__init__()
        self.out_features = 4 * width
        self.layers = nn.Sequential(
            *_block(channels, width, stride=1),
            *_block(width, 2 * width, stride=2),
            *_block(2 * width, 4 * width, stride=2),
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.layers[:3](images)
        while max(x.shape[2:]) > LARGEST_SIDE:
            x = F.max_pool2d(x, 2, ceil_mode=True)
        features: Tensor = self.layers[3:](x).mean((2, 3))
        return features


def _block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    return [convolution(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs), nn.LeakyReLU(SLOPE)]
