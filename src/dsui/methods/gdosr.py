"""GDOSR (Perera et al., CVPR 2020): a classifier that sees an image and its reconstruction by an auto-encoder.

    u = [x; g(x)],    y = W phi(u) + b,    t = V phi(T_k u) + c,    k uniform over the transformations T
    L = (1 - w) CE(y, label) + w CE(t, k),    w = 0.2

g is fitted to the known classes. Of other images g(x) differs from x, and phi sees both. Because phi must also tell how
an image was turned, it learns more about the image than its class. T_k turns x and g(x) alike: it is T_k g(x), never
g(T_k x). T are the four quarter turns of the image and of its mirror image. Where the recipe mirrors training images,
mirrored ones cannot be recognised, and T are the four turns. Images that are not square have half turns only, which
keep their shape.

There are two stages, with a schedule of the rate each. The first, two sevenths of the epochs, fits g alone:

    mean (x - g(x))^2 over pixels in [0, 1],    for one image its own uncertainty "reconstruction"

The second fits everything else by L, with g frozen. The published score is max_c y_c, the "max_logit" of `dsui.scores`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE
from dsui.backbones.decoder import GROUP, SIDE, Decoder, Pixels, decoder_width, resize
from dsui.backbones.registry import names
from dsui.checks import check_between
from dsui.methods.method import Method, Turn
from dsui.methods.network import FeatureNetwork, OutputLayer
from dsui.outputs import Outputs
from dsui.recipe import Recipe

AUTO_ENCODER_RATES = {"sgd": 1.0, "adam": 0.3}
"""The learning rate of g as a multiple of the recipe's. A public reimplementation has a tenth with Adam, and ends g
before phi begins. Here g must keep pace: after 12 epochs on 256 digits its error at 0.3 is two thirds of that at 0.1 or
at 1."""
FIRST_STAGE = 2 / 7
"""The share of the epochs for g: 40 of 140 in that reimplementation."""
QUARTERS = 4
LARGEST_CODE = 1 << 16


class ClassifierOutput(NamedTuple):
    """Input of the first turn's loss."""

    classes: Tensor
    """[B, C] logits of the untransformed images."""
    transformations: Tensor
    """[B, 4 or 8] logits of the transformed images."""
    drawn: Tensor
    """[B] the true k of each transformed image."""


class GenerativeDiscriminative(Method):
    """`code` is the number of features between the encoder and the decoder of g, `transform_weight` is w.

    A user's own backbone is refused: it takes one image, and this network takes two.
    """

    needs_images = True
    backbones = names()

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        code: int = 200,
        transform_weight: float = 0.2,
    ) -> None:
        super().__init__()
        check_between("code", code, 1, LARGEST_CODE)
        if not 0 <= transform_weight < 1:
            raise ValueError(f"transform_weight must be at least 0 and below 1, got {transform_weight}.")
        self.transform_weight, self.mirrors = transform_weight, not recipe.flip
        self.auto_encoder_rate = AUTO_ENCODER_RATES[recipe.optimizer]
        self.network = FeatureNetwork(backbone, 2 * channels, recipe, ending="activated")
        self.output = OutputLayer(self.network.out_features, num_classes)
        self.transformation = OutputLayer(self.network.out_features, 2 * QUARTERS if self.mirrors else QUARTERS)
        self.pixels = Pixels(recipe.mean, recipe.std)
        width = decoder_width(self.network.backbone.out_features, 4)
        self.auto_encoder = nn.Sequential(Encoder(channels, code, width), Decoder(code, channels, width))
        self.discriminating_from = min(math.ceil(FIRST_STAGE * recipe.epochs), recipe.epochs - 1)

    def turns(self) -> Sequence[Turn]:
        discriminating = (self.network, self.output, self.transformation)
        return (
            Turn(tuple(parameter for part in discriminating for parameter in part.parameters()), phase=1),
            Turn(tuple(self.auto_encoder.parameters()), self.auto_encoder_rate, phase=0),
        )

    def phase_at(self, epoch: int) -> int:
        """0 while g learns, 1 while all the rest does."""
        return int(epoch >= self.discriminating_from)

    def schedule_starts(self) -> Sequence[int]:
        return 0, self.discriminating_from

    def forward(self, images: Tensor) -> ClassifierOutput | Tensor:
        """The logits of labels and of T_k; in the second turn [B] squared errors of g. u and T_k u share one pass, and
        so their batch-norm statistics."""
        pixels = self.pixels.from_inputs(images)
        if self.turn == 1:
            return squared_error(pixels, self._reconstruct(pixels).float())
        with torch.no_grad():
            pairs = self._pairs(images, self._reconstruct(pixels))
        transformed, drawn = transform_at_random(pairs, self.mirrors)
        own, turned = self.network(torch.cat([pairs, transformed])).chunk(2)
        return ClassifierOutput(self.output(own), self.transformation(turned), drawn)

    def loss(self, output: ClassifierOutput | Tensor, labels: Tensor) -> Tensor:
        if isinstance(output, Tensor):
            value = output.mean()
            self.terms = {"reconstruction": value.detach()}
            return value
        of_class = F.cross_entropy(output.classes.float(), labels)
        of_transformation = F.cross_entropy(output.transformations.float(), output.drawn)
        self.terms = {"cross_entropy": of_class.detach(), "transformation": of_transformation.detach()}
        return (1 - self.transform_weight) * of_class + self.transform_weight * of_transformation

    def logits(self, output: ClassifierOutput) -> Tensor:
        return output.classes

    def predict(self, images: Tensor) -> Outputs:
        pixels = self.pixels.from_inputs(images)
        reconstructed = self._reconstruct(pixels)
        features = self.network(self._pairs(images, reconstructed))
        own = {"reconstruction": squared_error(pixels.double(), reconstructed.double())}
        return Outputs(features, self.output(features), weight=self.output.weight, bias=self.output.bias, own=own)

    def _reconstruct(self, pixels: Tensor) -> Tensor:
        """g(x), in the shape of `pixels`."""
        return resize(self.auto_encoder(resize(pixels, SIDE, SIDE)), *pixels.shape[2:])

    def _pairs(self, images: Tensor, reconstructed: Tensor) -> Tensor:
        """u [B, 2 channels, H, W], both halves as network inputs."""
        return torch.cat([images, self.pixels.to_inputs(reconstructed)], 1)


class Encoder(nn.Module):
    """Images [B, channels, 32, 32] -> codes [B, features], with the layers of `dsui.backbones.decoder` in reverse:

    (conv4x4/2 - GN - LeakyReLU) x 4 to w, 2 w, 4 w, 4 w - linear
    """

    def __init__(self, channels: int, features: int, width: int) -> None:
        super().__init__()
        widths = (channels, width, 2 * width, 4 * width, 4 * width)
        halvings = [layer for inputs, outputs in pairwise(widths) for layer in _halving(inputs, outputs)]
        self.layers = nn.Sequential(*halvings, nn.Flatten(), nn.Linear(4 * widths[-1], features))

    def forward(self, images: Tensor) -> Tensor:
        codes: Tensor = self.layers(images)
        return codes


def symmetries(images: Tensor, mirrors: bool) -> Tensor:
    """All T_k that keep the shape: quarter turns, for images that are not square half turns, and with `mirrors` then
    those of the mirror image. [..., H, W] -> [T, ..., H, W]"""
    turns = range(QUARTERS) if images.shape[-2] == images.shape[-1] else (0, 2)
    sides = (images, images.flip(-1)) if mirrors else (images,)
    return torch.stack([side.rot90(quarters, (-2, -1)) for side in sides for quarters in turns])


def transform_at_random(images: Tensor, mirrors: bool) -> tuple[Tensor, Tensor]:
    """T_k of each image, all its channels alike, and k [B]. All T are computed and one is chosen: that costs a few
    copies on the device, and nothing waits for the host."""
    every = symmetries(images, mirrors)
    drawn = torch.randint(len(every), (len(images),), device=images.device)
    return every[drawn, torch.arange(len(images), device=images.device)], drawn


def squared_error(pixels: Tensor, reconstructed: Tensor) -> Tensor:
    """The mean over the values of each image. [B, C, H, W] -> [B]"""
    return (pixels - reconstructed).square().mean((1, 2, 3))


def _halving(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 4, stride=2, padding=1),
        nn.GroupNorm(outputs // GROUP, outputs),
        nn.LeakyReLU(SLOPE),
    )
