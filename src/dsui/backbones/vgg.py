"""VGG16 with batch norm (Simonyan & Zisserman, ICLR 2015), without its fully connected layers.

    2 x 64, 2 x 128, 3 x 256, 3 x 512, 3 x 512 channels: 3x3 convolution, batch norm, LeakyReLU(0.2)
    a 2x2 max-pool after each group, then the mean over positions -> 512 features

At 32x32 the last map is 1x1 and the mean changes nothing; at 64x64 it is 2x2.
Batch norm makes the biases of the convolutions superfluous. They are kept, so that the 14,723,136 parameters are those
of the published VGG16-BN. The public DS-UI code has no VGG16; this one has the changes that it makes to ResNet18.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE, Backbone, convolution

GROUPS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(Backbone):
    """[B, channels, H, W] -> [B, 512] features, H and W at least 32; initialised as `dsui.backbones.backbone` says."""

    out_features = GROUPS[-1][-1]
    smallest_side: ClassVar[int] = 2 ** len(GROUPS)

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for group in GROUPS:
            for outputs in group:
                layers += [convolution(inputs, outputs, bias=True), nn.BatchNorm2d(outputs), nn.LeakyReLU(SLOPE)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if min(height, width) < self.smallest_side:
            raise ValueError(
                f"vgg16 halves the image five times and needs {self.smallest_side}x{self.smallest_side} pixels, "
                f"got {height}x{width}; choose small or resnet18, or enlarge the images."
            )
        features: Tensor = self.layers(images).mean((2, 3))
        return features
