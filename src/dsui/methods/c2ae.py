"""C2AE (Oza and Patel, CVPR 2019): an auto-encoder that gets a class and reconstructs well only if it is the right one.

    z = f(x),   p = softmax(W z + b)                          fitted to the labels by cross-entropy
    z_j = gamma_j * z + beta_j,   x_j = G(z_j)                G: `dsui.backbones.decoder`
    gamma_j = H_g l_j + h_g,   beta_j = H_b l_j + h_b         l_j: +1 for class j, -1 for all others
    L = a |x - x_y| + (1 - a) |x' - x_j|                      a = 0.9; means over pixels in [0, 1] and over the batch

In the second term j is any wrong label and x' any image of the batch whose class is not y: under a wrong label G can
learn only a blur. The own uncertainty "reconstruction" is the error under the label that suits best,

    r(x) = min_j |x - x_j|

There are two stages, of half of the epochs each and with a schedule of the rate each: first f, W and b, then G and H
with f frozen, which is in evaluation mode and gets no gradient. At the end a threshold r_0 is set on errors of training
images, where P(|x - x_y| > t) + P(|x - x_j| < t), j a wrong label, is least in t (`dsui.pareto`). The own uncertainty
"unknown" is r(x) - r_0: the image belongs to no class if it is above 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.decoder import Decoder, Pixels, decoder_width, resize
from dsui.methods.method import Method, Turn
from dsui.methods.network import FeatureNetwork, OutputLayer, evaluation_mode
from dsui.outputs import Outputs
from dsui.pareto import threshold_between
from dsui.recipe import Recipe

DECODER_RATES = {"sgd": 5.0, "adam": 1.0}
"""The learning rate of G and H as a multiple of the recipe's. The published rate is 3e-4 with Adam, for both stages.
With SGD the gradients are small: on digits it takes five times the rate to do as well as Adam, and twenty times is
still stable."""


class EncodedImages(NamedTuple):
    """Input of the second turn: features [B, M] without gradients, and their images' pixels [B, channels, H, W]."""

    features: Tensor
    pixels: Tensor


class ConditionedAutoEncoder(Method):
    """The network of the baseline, and a decoder a quarter as wide as the backbone's features; `match_weight` is a."""

    needs_images = True
    codes: Tensor
    threshold: Tensor

    def __init__(
        self, backbone: str, channels: int, num_classes: int, recipe: Recipe, *, match_weight: float = 0.9
    ) -> None:
        super().__init__()
        if not 0 < match_weight <= 1:
            raise ValueError(f"match_weight must be above 0 and at most 1, got {match_weight}.")
        self.match_weight, self.num_classes = match_weight, num_classes
        self.decoder_rate = DECODER_RATES[recipe.optimizer]
        self.network = FeatureNetwork(backbone, channels, recipe, ending="activated")
        features = self.network.out_features
        self.output = OutputLayer(features, num_classes)
        self.gain, self.shift = nn.Linear(num_classes, features), nn.Linear(num_classes, features)
        self.decoder = Decoder(features, channels, decoder_width(self.network.backbone.out_features, 4))
        self.pixels = Pixels(recipe.mean, recipe.std)
        self.register_buffer("codes", 2 * torch.eye(num_classes) - 1, persistent=False)
        self.register_buffer("threshold", torch.zeros((), dtype=torch.float64))
        self.decoding_from = (recipe.epochs + 1) // 2

    def turns(self) -> Sequence[Turn]:
        classifying = (*self.network.parameters(), *self.output.parameters())
        decoding = (*self.gain.parameters(), *self.shift.parameters(), *self.decoder.parameters())
        return Turn(classifying, phase=0), Turn(decoding, self.decoder_rate, phase=1)

    def phase_at(self, epoch: int) -> int:
        """0 while the classifier learns, 1 while the decoder does."""
        return int(epoch >= self.decoding_from)

    def schedule_starts(self) -> Sequence[int]:
        return 0, self.decoding_from

    def forward(self, images: Tensor) -> Tensor | EncodedImages:
        """Logits [B, C]; in the second turn the features that `loss` decodes, because only it knows the labels."""
        if self.turn == 1:
            with torch.no_grad(), evaluation_mode(self.network):
                return EncodedImages(self.network(images), self.pixels.from_inputs(images))
        logits: Tensor = self.output(self.network(images))
        return logits

    def loss(self, output: Tensor | EncodedImages, labels: Tensor) -> Tensor:
        if isinstance(output, EncodedImages):
            return self._decoding_loss(output, labels)
        value = F.cross_entropy(output.float(), labels)
        self.terms = {"cross_entropy": value.detach()}
        return value

    def logits(self, output: Tensor | EncodedImages) -> Tensor:
        assert isinstance(output, Tensor), "the second turn has no logits"
        return output

    @torch.no_grad()
    def complete(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Set the threshold."""
        right, other = [], []
        for images, labels in batches:
            features, pixels = self.network(images), self.pixels.from_inputs(images)
            right.append(self._image_errors(features, labels, pixels))
            other.append(self._image_errors(features, wrong_labels(labels, self.num_classes), pixels))
        self.threshold.copy_(threshold_between(torch.cat(right), torch.cat(other)))

    def predict(self, images: Tensor) -> Outputs:
        """Decodes once for each class, one class after another, so that memory does not grow with their number. Attacks
        and detectors get the gradient of the logits without that of the decoder."""
        features = self.network(images)
        with torch.no_grad():
            least = self._least_error(features, self.pixels.from_inputs(images))
        own = {"reconstruction": least, "unknown": least - self.threshold}
        return Outputs(features, self.output(features), own=own, weight=self.output.weight, bias=self.output.bias)

    def _decoding_loss(self, encoded: EncodedImages, labels: Tensor) -> Tensor:
        wrong, (partners, found) = wrong_labels(labels, self.num_classes), foreign_partners(labels)
        features, pixels = encoded
        # autocast ends with `forward`; where the features are bfloat16, the decoder runs in bfloat16 too
        half = features.dtype == torch.bfloat16
        with torch.autocast(features.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            decoded = self._decode(torch.cat([features, features]), torch.cat([labels, wrong]))
        right, other = _errors(decoded, torch.cat([pixels, pixels[partners]])).mean((1, 2, 3)).chunk(2)
        match, non_match = right.mean(), (other * found).sum() / found.sum().clamp(min=1)
        self.terms = {"match": match.detach(), "non_match": non_match.detach()}
        return self.match_weight * match + (1 - self.match_weight) * non_match

    def _decode(self, features: Tensor, labels: Tensor) -> Tensor:
        """G(gamma_j * z + beta_j) [B, channels, 32, 32], for one label per image or one label for all."""
        codes = self.codes[labels]
        decoded: Tensor = self.decoder(self.gain(codes) * features + self.shift(codes))
        return decoded

    def _least_error(self, features: Tensor, pixels: Tensor) -> Tensor:
        """[B], in float64"""
        least = torch.full((features.shape[0],), torch.inf, dtype=torch.float64, device=features.device)
        for label in torch.arange(self.num_classes, device=features.device).split(1):
            least = least.minimum(self._image_errors(features, label, pixels))
        return least

    def _image_errors(self, features: Tensor, labels: Tensor, pixels: Tensor) -> Tensor:
        """[B], in float64, under one label per image or one label for all"""
        return _errors(self._decode(features, labels), pixels).mean((1, 2, 3), dtype=torch.float64)


def wrong_labels(labels: Tensor, num_classes: int) -> Tensor:
    """For each label a random one of the others. [B] -> [B]"""
    return (labels + torch.randint_like(labels, 1, num_classes)) % num_classes


def foreign_partners(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each image, the index of a random one of another class, and whether there is any. [B] -> [B], [B]"""
    same = labels[:, None] == labels
    draws = torch.rand(same.shape, device=labels.device).masked_fill(same, -1)
    return draws.argmax(1), ~same.all(1)


def _errors(decoded: Tensor, pixels: Tensor) -> Tensor:
    """The error of every pixel [B, channels, H, W], in the type of `pixels`."""
    return (resize(decoded.to(pixels.dtype), *pixels.shape[2:]) - pixels).abs()
