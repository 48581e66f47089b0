"""G-OpenMax (Ge, Demyanov and Garnavi, BMVC 2017): a classifier with one more class, for unknown images, which it
learns from generated ones.

    p = softmax(y_1, ..., y_C, 0), the last for the unknown
    L = -(sum_own ln p_t + sum_fakes r ln p_{C+1}) / (B + sum r)

A conditional generator G makes the fakes, each from two classes at once:

    x = G(e, s a + (1 - s) b),  e ~ N(0, I),  s ~ U(0, 1),  a and b the codes of two classes;  r = 1 where the known
    class that is likeliest for x is not the one with the larger share, else 0

G learns to generate each class against a discriminator D that sees image and class (Goodfellow et al., 2014; Mirza and
Osindero, 2014):

    D: -ln s(D(x, t)) - ln(1 - s(D(G(e, t), t)))        G: -ln s(D(G(e, t), t)),   s the logistic function

There are two stages, of half of the epochs each and with a schedule of the rate each. In the first the classifier
learns the classes, and beside it G and D play. In the second G is frozen, and the classifier learns its fakes too. The
logit of the unknown class is fixed at 0. This is as general as a logit of its own, because softmax does not change if
all logits are shifted; and P(unknown) orders images as the energy of y does.

At the end OpenMax (`dsui.weibull`) is fitted to the C + 1 logits, less their mean, of training images and of fakes, as
far as they are classified correctly. It takes from unusual logits and gives to the unknown class. With v the discounted
logits and d the sum of what was taken, as in the published code also of negative ones, the own uncertainty is

    unknown = ln (e^{v_{C+1}} + e^d) / sum_c e^{v_c}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE
from dsui.backbones.decoder import GROUP, SIDE, Decoder, Pixels, decoder_width, resize
from dsui.checks import check_positive
from dsui.methods.method import Turn
from dsui.methods.msp import MaxSoftmax
from dsui.outputs import Outputs
from dsui.recipe import Recipe
from dsui.weibull import UnusualDistances, Weibull, discounted, fit_unusual_distances

NOISE = 100
"""Length of e."""
FAKES = 0.5
"""Fakes for each image of the batch, in the classifier's turn."""
TAIL, TAIL_SHARE = 20, 0.1
"""The most samples of a class that OpenMax is fitted to, and the largest share: with more, ordinary samples would count
as unusual where classes are small."""
NEVER = 1e30
"""A distance that none exceeds: before OpenMax is fitted, no logit is unusual."""
MOMENTUM = 0.5
"""The momentum of G and D, usual for such pairs: with Adam's 0.9, G generated the same image always."""


class ClassifierOutput(NamedTuple):
    """Logits [B + fakes, C] of images and then fakes, and for each fake the class with the larger share."""

    logits: Tensor
    main_class: Tensor


class GenerativeOpenMax(MaxSoftmax):
    """The network of the baseline; its logits are those of C classes, and the logit of the unknown class is 0.

    `generator_rate` is the learning rate of G and D as a multiple of the recipe's: the usual 2e-4 where Adam has
    7.5e-4.
    """

    needs_images = True
    means: Tensor
    least: Tensor
    shape: Tensor
    scale: Tensor

    def __init__(
        self, backbone: str, channels: int, num_classes: int, recipe: Recipe, *, generator_rate: float = 0.27
    ) -> None:
        check_positive("generator_rate", generator_rate)
        super().__init__(backbone, channels, num_classes, recipe)
        width = decoder_width(self.network.backbone.out_features, 8)
        self.generator = Decoder(NOISE + num_classes, channels, width)
        self.discriminator = Discriminator(channels, num_classes, width)
        self.pixels = Pixels(recipe.mean, recipe.std)
        self.num_classes, self.generator_rate = num_classes, generator_rate
        self.fakes_from = recipe.epochs // 2
        classes = num_classes + 1
        untrained = UnusualDistances(
            torch.zeros(classes, classes), torch.full((classes,), NEVER), Weibull(*torch.ones(2, classes))
        )
        for name, value in _tensors(untrained).items():
            self.register_buffer(name, value.double())

    def turns(self) -> Sequence[Turn]:
        return (
            Turn((*self.network.parameters(), *self.output.parameters())),
            Turn(tuple(self.discriminator.parameters()), self.generator_rate, phase=0, momentum=MOMENTUM),
            Turn(tuple(self.generator.parameters()), self.generator_rate, phase=0, momentum=MOMENTUM),
        )

    def phase_at(self, epoch: int) -> int:
        """0 while the classifier sees no fakes, 1 once it does."""
        return int(epoch >= self.fakes_from)

    def schedule_starts(self) -> Sequence[int]:
        return 0, self.fakes_from

    def forward(self, images: Tensor) -> ClassifierOutput | Tensor:  # type: ignore[override]
        """In the turns of D and G the images themselves: their loss needs the labels, which `forward` does not have."""
        if self.turn != 0:
            return images
        if self.phase == 0:
            return ClassifierOutput(super().forward(images), torch.zeros(0, dtype=torch.int64, device=images.device))
        return self._with_fakes(images)

    def loss(self, output: ClassifierOutput | Tensor, labels: Tensor) -> Tensor:
        if isinstance(output, ClassifierOutput):
            return self._classification(output, labels)
        codes, size = F.one_hot(labels, self.num_classes).float(), output.shape[2:]
        if self.turn == 1:
            with torch.no_grad():
                fakes = self._generate(codes, size)
            own = self.discriminator(self.pixels.from_inputs(output.float()), codes)
            value = F.softplus(-own).mean() + F.softplus(self.discriminator(fakes, codes)).mean()
            self.terms = {"discriminator": value.detach()}
            return value
        value = F.softplus(-self.discriminator(self._generate(codes, size), codes)).mean()
        self.terms = {"generator": value.detach()}
        return value

    def logits(self, output: ClassifierOutput | Tensor) -> Tensor:
        assert isinstance(output, ClassifierOutput)
        return output.logits

    @torch.no_grad()
    def complete(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit OpenMax. A class of which nothing is classified correctly is described by all that it has; if one has
        nothing at all, logits are not discounted."""
        found: list[tuple[Tensor, Tensor]] = []
        for images, labels in batches:
            output = self._with_fakes(images)
            own, fakes = output.logits.double().split([len(labels), len(output.main_class)])
            fakes = fakes[fakes.argmax(1) != output.main_class]
            found += [(own, labels), (fakes, labels.new_full((len(fakes),), self.num_classes))]
        logits, truth = (torch.cat(part) for part in zip(*found, strict=True))
        y, classes = _with_unknown(logits), self.num_classes + 1
        if torch.bincount(truth, minlength=classes).min() == 0:
            return
        correct = y.argmax(1) == truth
        chosen = correct | (torch.bincount(truth[correct], minlength=classes) == 0)[truth]
        y, truth = y[chosen], truth[chosen]
        means = torch.zeros_like(self.means).index_add_(0, truth, y) / torch.bincount(truth)[:, None]
        distances = torch.linalg.vector_norm(y - means[truth], dim=1)
        for name, value in _tensors(fit_unusual_distances(distances, truth, means, TAIL, TAIL_SHARE)).items():
            getattr(self, name).copy_(value)

    def predict(self, images: Tensor) -> Outputs:
        """Attacks and detectors get the gradient of the logits without that of OpenMax."""
        plain = super().predict(images)
        with torch.no_grad():
            y = _with_unknown(plain.logits.double())
            unusual = UnusualDistances(self.means, self.least, Weibull(self.shape, self.scale)).probability(y)
            left, removed = discounted(y, unusual, y.shape[1])
            unknown = torch.logaddexp(left[:, -1], removed) - left[:, :-1].logsumexp(1)
        return replace(plain, own={"unknown": unknown})

    def _with_fakes(self, images: Tensor) -> ClassifierOutput:
        shares = self._mixtures(int(FAKES * len(images)), images.device)
        with torch.no_grad():
            fakes = self.pixels.to_inputs(self._generate(shares, images.shape[2:]))
        return ClassifierOutput(super().forward(torch.cat([images, fakes])), shares.argmax(1))

    def _classification(self, output: ClassifierOutput, labels: Tensor) -> Tensor:
        logits = F.pad(output.logits.float(), (0, 1))
        own = F.cross_entropy(logits[: len(labels)], labels, reduction="sum")
        fakes = logits[len(labels) :]
        kept = (fakes.detach()[:, :-1].argmax(1) != output.main_class).float()
        unknown = (kept * (fakes.logsumexp(1) - fakes[:, -1])).sum()
        self.terms = {"cross_entropy": own.detach() / len(labels), "kept_fakes": kept.sum() / max(len(kept), 1)}
        return (own + unknown) / (len(labels) + kept.sum())

    def _mixtures(self, count: int, device: torch.device) -> Tensor:
        """Codes of fakes: two classes each, with shares that sum to 1. [count, C]"""
        first = torch.randint(self.num_classes, (count,), device=device)
        second = (first + torch.randint(1, self.num_classes, (count,), device=device)) % self.num_classes
        share = torch.rand(count, 1, device=device)
        return share * F.one_hot(first, self.num_classes) + (1 - share) * F.one_hot(second, self.num_classes)

    def _generate(self, codes: Tensor, size: Sequence[int]) -> Tensor:
        """Images of that size, because at another size D could tell them by their grain. They are in float32, also
        where autocast runs the classifier in bfloat16. [B, C] -> [B, channels, H, W]"""
        noise = torch.randn(len(codes), NOISE, device=codes.device)
        with torch.autocast(codes.device.type, enabled=False):
            return resize(self.generator(torch.cat([noise, codes], 1)), *size)


class Discriminator(nn.Module):
    """Pixels [B, channels, H, W] and class codes [B, C] -> log-odds [B] that they belong together and are real.

    32 x 32 - conv4x4/2 - LeakyReLU - (conv4x4/2 - GN - LeakyReLU) x 2 - linear, the code as C more input channels.
    """

    def __init__(self, channels: int, num_classes: int, width: int) -> None:
        super().__init__()
        widths = (channels + num_classes, width, 2 * width, 4 * width)
        first, *others = (nn.Conv2d(inputs, outputs, 4, stride=2, padding=1) for inputs, outputs in pairwise(widths))
        normed = [
            part
            for layer in others
            for part in (layer, nn.GroupNorm(layer.out_channels // GROUP, layer.out_channels), nn.LeakyReLU(SLOPE))
        ]
        self.layers = nn.Sequential(first, nn.LeakyReLU(SLOPE), *normed, nn.Flatten(), nn.Linear(64 * width, 1))

    def forward(self, pixels: Tensor, codes: Tensor) -> Tensor:
        maps = codes[:, :, None, None].expand(-1, -1, SIDE, SIDE)
        odds: Tensor = self.layers(torch.cat([resize(pixels, SIDE, SIDE), maps], 1))
        return odds.squeeze(1)


def _with_unknown(logits: Tensor) -> Tensor:
    """[N, C] -> [N, C + 1], less their mean. A logit of the unknown class's own would learn with the others, and what
    softmax learns has the sum 0; OpenMax, unlike softmax, depends on it."""
    y = F.pad(logits, (0, 1))
    return y - y.mean(1, keepdim=True)


def _tensors(tails: UnusualDistances) -> dict[str, Tensor]:
    """By the names of the buffers that hold them."""
    return {"means": tails.means, "least": tails.least, "shape": tails.weibull.shape, "scale": tails.weibull.scale}
