"""Accuracy and loss on held-out images while a run trains. Measuring changes nothing of the training.

Measured are n = min(held out, MOST_IMAGES, MOST_BYTES / bytes of an image, max(FEWEST, SHARE x N)) images, evenly
chosen, where N are trained on. On a CPU a prediction takes a third to a half of the time of a training step on the same
image, so of many images this takes about 3 % of the time, and some 10 % of a thousand of which a third is held out.
A method with several forward passes for a prediction is measured

    every ceil(n x passes / (2 SHARE x N)) epochs, and after the last one,

all others after every epoch, and so is every method where early stopping goes by the loss. The weights are those of the
moment; with early stopping they are those that the run would end with (`dsui.training.early_stopping`).

The loss is the cross-entropy of what the method predicts, the mean over images. Where the recipe balances classes, it
is the mean over classes of their means, since that is what training lowers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.data.augment import Transform
from dsui.data.dataset import ImageSet
from dsui.methods.method import Method
from dsui.recipe import Recipe
from dsui.runs.calibration import even_choice
from dsui.runs.model import forward

MOST_IMAGES = 2000
"""The standard error of an accuracy near 90 % is then 0.7 points."""
MOST_BYTES = 1 << 28
FEWEST = 300
SHARE = 0.06
"""Predicted images for each training image."""


class HeldOutFigures(NamedTuple):
    """As shares and in nats."""

    accuracy: float
    loss: float


class HeldOutMeasurement:
    """Of a method that is trained by `recipe` on `samples` images an epoch; its batch fits into the memory."""

    def __init__(
        self, method: Method, transform: Transform, held_out: ImageSet, *, samples: int, recipe: Recipe
    ) -> None:
        self.method, self.transform, self.held_out, self.recipe = method, transform, held_out, recipe
        most = min(MOST_IMAGES, MOST_BYTES // math.prod(held_out.shape), max(FEWEST, int(SHARE * samples)))
        self.chosen = even_choice(len(held_out.labels), max(1, most))
        costly = method.passes > 1 and recipe.patience == 0
        self.every = math.ceil(len(self.chosen) * method.passes / (2 * SHARE * samples)) if costly else 1
        self._sample: tuple[Tensor, Tensor] | None = None

    def due(self, epoch: int) -> bool:
        return (epoch + 1) % self.every == 0 or epoch == self.recipe.epochs - 1

    def measure(self, device: torch.device) -> HeldOutFigures:
        """The images are read once and stay on the device."""
        if self._sample is None:
            images, labels = self.held_out.read(self.chosen), self.held_out.labels[self.chosen]
            self._sample = images.to(device), labels.to(device)
        right, losses = 0, []
        with _predicting(self.method):
            for images, labels in zip(*(part.split(self.recipe.batch) for part in self._sample), strict=True):
                outputs = forward(self.method, self.transform, images)
                right += int((outputs.predictions == labels).sum())
                losses.append(F.cross_entropy(outputs.logits.double(), labels, reduction="none"))
        return HeldOutFigures(right / len(self.chosen), float(self._mean(torch.cat(losses).cpu())))

    def _mean(self, losses: Tensor) -> Tensor:
        if self.recipe.balance == "none":
            return losses.mean()
        labels = self.held_out.labels[self.chosen]
        counts = torch.bincount(labels)
        return (torch.bincount(labels, losses)[counts > 0] / counts[counts > 0]).mean()


@contextmanager
def _predicting(method: Method) -> Iterator[None]:
    """Evaluation mode; afterwards every module is in the mode it was in, and the terms of the loss are what they were.

    `forward` itself keeps the random numbers of its caller.
    """
    modes, terms = [(module, module.training) for module in method.modules()], method.terms
    method.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        method.terms = terms
