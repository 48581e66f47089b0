"""The parts of an SDE-Net (Kong, Sun and Zhang, ICML 2020): images to h_0, drift f(h, t), diffusion g(h_0).

    stem, small      conv3x3 - GN - ReLU - conv4x4/2 - GN - ReLU - conv4x4/2       64 channels, a quarter of the side
    stem, resnet18   stem and stages 1 to 3 of `dsui.backbones.resnet` - conv3x3/2 512 channels, an eighth of it
    drift            GN - ReLU - conv3x3 - GN - ReLU - conv3x3 - GN                time is one more input channel
    diffusion        (GN - ReLU - conv3x3) x 3 - GN - ReLU - mean over positions - linear

GN is group norm in at most 32 groups: no image sees its neighbours in the batch. Convolutions have biases and start
Kaiming-normal over the fan out with the gain of a ReLU, linear layers as N(0, 1e-3^2), biases at zero. All this is the
published net for SVHN, with one exception. The first convolution is padded here, so that an 8x8 image ends as 2x2;
without padding it would end as a single position, each group would hold two values, and its norm would keep only their
signs. The published diffusion has a time channel too; time is always 0 there, so that the channel does nothing.
"""

from __future__ import annotations

from torch import Tensor, nn

from dsui.backbones.resnet import STAGES, ResNet18

WIDTH = 64
"""Channels of the published net."""
LARGEST_GROUPS = 32
LINEAR_DEVIATION = 1e-3
BLOCKS_PER_STAGE = 2


def small_stem(channels: int) -> nn.Sequential:
    """[B, channels, H, W] -> h_0 [B, 64, H / 4, W / 4]"""
    return nn.Sequential(
        convolution(channels, WIDTH),
        *norm_and_relu(WIDTH),
        convolution(WIDTH, WIDTH, kernel=4, stride=2),
        *norm_and_relu(WIDTH),
        convolution(WIDTH, WIDTH, kernel=4, stride=2),
    )


def resnet18_stem(channels: int, released_start: bool = False) -> nn.Sequential:
    """[B, channels, H, W] -> h_0 [B, 512, H / 8, W / 8]; its batch norms are those of ResNet18."""
    whole = ResNet18(channels, released_start)
    before_last_stage = list(whole.blocks)[:-BLOCKS_PER_STAGE]
    return nn.Sequential(whole.stem, *before_last_stage, convolution(*STAGES[-2:], stride=2))


class Drift(nn.Module):
    """f(h, t), with the shape of h [B, width, H, W]; the last norm keeps its values near one, however large h is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_first, self.before_second = (nn.Sequential(*norm_and_relu(width)) for _ in range(2))
        self.first, self.second = TimedConvolution(width), TimedConvolution(width)
        self.last = group_norm(width)

    def forward(self, h: Tensor, t: float) -> Tensor:
        y = self.first(self.before_first(h), t)
        f: Tensor = self.last(self.second(self.before_second(y), t))
        return f


class TimedConvolution(nn.Module):
    """A 3x3 convolution of x [B, width, H, W] and one more channel that is t everywhere.

    It is computed as two: width + 1 channels suit no matrix unit, and the part of t is the same for all images.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.space, self.time = convolution(width, width), convolution(1, width, bias=False)

    def forward(self, x: Tensor, t: float) -> Tensor:
        y: Tensor = self.space(x) + self.time(x.new_full((1, 1, *x.shape[2:]), t))
        return y


class Diffusion(nn.Module):
    """h_0 [B, width, H, W] -> log-odds of g [B]"""

    def __init__(self, width: int) -> None:
        super().__init__()
        convolutions = [layer for _ in range(3) for layer in (*norm_and_relu(width), convolution(width, width))]
        self.layers = nn.Sequential(*convolutions, Pooling(width), initialise_linear(nn.Linear(width, 1)))

    def forward(self, h: Tensor) -> Tensor:
        odds: Tensor = self.layers(h)
        return odds.squeeze(1)


class Pooling(nn.Module):
    """GN - ReLU - mean over positions: [B, width, H, W] -> [B, width]"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*norm_and_relu(width))

    def forward(self, h: Tensor) -> Tensor:
        pooled: Tensor = self.layers(h).mean((2, 3))
        return pooled


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=1, bias=bias)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def initialise_linear(layer: nn.Linear) -> nn.Linear:
    """The layer itself, its weights drawn from N(0, 1e-3^2), its biases 0."""
    nn.init.normal_(layer.weight, std=LINEAR_DEVIATION)
    nn.init.zeros_(layer.bias)
    return layer


def group_norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(LARGEST_GROUPS, width), width)


def norm_and_relu(width: int) -> tuple[nn.Module, nn.Module]:
    return group_norm(width), nn.ReLU()
