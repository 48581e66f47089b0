"""Accuracy on held-out images while a run trains. It changes nothing of the training.

On a CPU a prediction takes a third to a half of the time of a training step on the same images. So that measuring takes
about 3 % of the time, and of the short training of few images at most 9 %, there is

    a measurement of n = min(held out, MOST_IMAGES, MOST_BYTES / bytes of an image, max(FEWEST, SHARE x N)) images
    every ceil(n x passes / (2 SHARE x N)) epochs, and after the last one

with N training images; the n images are evenly chosen. The weights are those of the moment. Where a run ends with
averaged weights, these are usually better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dsui.data.augment import Transform
from dsui.data.dataset import ImageSet
from dsui.methods.method import Method
from dsui.runs.calibration import even_choice
from dsui.runs.model import forward

MOST_IMAGES = 2000
"""The standard error of an accuracy near 90 % is then 0.7 points."""
MOST_BYTES = 1 << 28
FEWEST = 300
SHARE = 0.06
"""Predicted images for each training image."""


class HeldOutAccuracy:
    """Of a method that is trained for `epochs` epochs of `samples` images; `batch` of them fit into the memory."""

    def __init__(
        self, method: Method, transform: Transform, held_out: ImageSet, *, samples: int, epochs: int, batch: int
    ) -> None:
        self.method, self.transform, self.held_out = method, transform, held_out
        self.epochs, self.batch = epochs, batch
        most = min(MOST_IMAGES, MOST_BYTES // math.prod(held_out.shape), max(FEWEST, int(SHARE * samples)))
        self.chosen = even_choice(len(held_out.labels), max(1, most))
        self.every = math.ceil(len(self.chosen) * method.passes / (2 * SHARE * samples))
        self._sample: tuple[Tensor, Tensor] | None = None

    def due(self, epoch: int) -> bool:
        return (epoch + 1) % self.every == 0 or epoch == self.epochs - 1

    def measure(self, device: torch.device) -> float:
        """The images are read once and stay on the device."""
        if self._sample is None:
            images, labels = self.held_out.read(self.chosen), self.held_out.labels[self.chosen]
            self._sample = images.to(device), labels.to(device)
        right = 0
        with _predicting(self.method):
            for images, labels in zip(*(part.split(self.batch) for part in self._sample), strict=True):
                right += int((forward(self.method, self.transform, images).predictions == labels).sum())
        return right / len(self.chosen)


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
