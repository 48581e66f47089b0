"""ResNet18 for small images (He et al., CVPR 2016, with the CIFAR stem of the released DS-UI code).

    3x3 convolution, 64 channels, stride 1, no max-pool
    four stages of two basic blocks: 64, 128, 256, 512 channels, each stage after the first halving the image
    mean over positions -> 512 features

At 32x32 the last map is 4x4, at 64x64 8x8; the mean is over all of it, so that any size works.
A basic block is LeakyReLU(BN(conv(LeakyReLU(BN(conv(x))))) + shortcut(x)); the shortcut is the identity,
or a 1x1 convolution with batch norm where the shape changes. No convolution has a bias.
With a linear layer for ten classes there are 11,173,962 parameters.
"""

from __future__ import annotations

from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE, Backbone, convolution

STAGES = (64, 128, 256, 512)


class ResNet18(Backbone):
    """[B, channels, H, W] -> [B, 512] features, initialised as `dsui.backbones.backbone` says.

    `released_start` initialises as the authors' public code does: 3x3 convolutions with the gain of a plain
    ReLU, std = sqrt(2 / fan out), and 1x1 shortcuts at PyTorch's default, because its rule does not match their names.
    """

    out_features = STAGES[-1]

    def __init__(self, channels: int = 3, released_start: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(channels, STAGES[0]), nn.BatchNorm2d(STAGES[0]), nn.LeakyReLU(SLOPE))
        blocks = []
        for inputs, outputs in zip((STAGES[0], *STAGES), STAGES, strict=False):
            blocks += [BasicBlock(inputs, outputs, stride=outputs // inputs), BasicBlock(outputs, outputs)]
        self.blocks = nn.Sequential(*blocks)
        if released_start:
            self._start_as_released()

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images)).mean((2, 3))
        return features

    def _start_as_released(self) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
                layer.reset_parameters()
            elif isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; `stride` 2 halves the image."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            convolution(inputs, outputs, stride=stride),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(SLOPE),
            convolution(outputs, outputs),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.activation = nn.LeakyReLU(SLOPE)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.residual(x) + self.shortcut(x))
        return y
