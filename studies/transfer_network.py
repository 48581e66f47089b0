"""The network of the transfer study: a narrow residual network for 32 x 32 photographs, small enough for one CPU core.

    3x3 convolution, 32 channels; max-pool by two
    one basic block of 48 channels, two of 96, two of 192, the image halved twice more: maps of 16, 8 and 4
    mean over positions -> 192 features

The blocks are those of `dsui.backbones.resnet`. Its layers run in bfloat16, which doubles the speed of processors that
have it. It is a module of one's own for `--backbone studies.transfer_network:narrow_resnet`, as a user's would be.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE, convolution
from dsui.backbones.resnet import BasicBlock

STEM = 32
BLOCKS = ((48, 1), (96, 2), (96, 1), (192, 2), (192, 1))
"""Channels and stride of each block."""


class NarrowResNet(nn.Module):
    """[B, 3, H, W] -> [B, 192], float32."""

    out_features = BLOCKS[-1][0]
    base_model_prefix = "network.backbone.model"
    """Where its weights are in a run of `dsui train`, so that `--weights RUN/model.safetensors` finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, STEM), nn.BatchNorm2d(STEM), nn.LeakyReLU(SLOPE), nn.MaxPool2d(2))
        inputs = (STEM, *(channels for channels, _ in BLOCKS))
        self.blocks = nn.Sequential(
            *(BasicBlock(before, channels, stride) for before, (channels, stride) in zip(inputs, BLOCKS, strict=False))
        )

    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, dtype=torch.bfloat16, cache_enabled=False):
            maps: Tensor = self.blocks(self.stem(images.contiguous(memory_format=torch.channels_last)))
        return maps.float().mean((2, 3))


def narrow_resnet() -> NarrowResNet:
    """The network, not trained."""
    return NarrowResNet()
