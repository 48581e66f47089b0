"""What training does about classes of uneven size, and about images that do not count alike.

    sampling    every class is met equally often: an image of class c has the weight N / (C n_c), see
                `dsui.data.sampling`. What the method is told of its classes are the numbers that it meets.
    logits      the loss is taken of logits y + ln pi, with pi the share of each class, and predictions are of y alone
                (logit adjustment; Menon et al., ICLR 2021). Mixtures weigh classes by pi in their scores already; when
                training ends, their pi becomes even, so that densities forget how often a class was seen too.

Both aim at the mean of the classes' error rates in place of the error rate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.data.augment import splitmix64
from dsui.data.dataset import ImageSet
from dsui.data.sampling import balanced, check_weights, drawn_places, epoch_length
from dsui.errors import DsuiError
from dsui.methods.method import Method
from dsui.methods.registry import adjustable
from dsui.recipe import Recipe

DRAW = 0xBA1A
"""Keeps the draws of images apart from those of their order."""


class Balance:
    """Of one run. `epoch_samples` is how many images an epoch meets, `counts` [C] how many of each class."""

    def __init__(self, recipe: Recipe, images: ImageSet, sample_weight: Tensor | None) -> None:
        self.logits, self.labels, classes = recipe.balance == "logits", images.labels, len(images.classes)
        weights = sample_weight
        if weights is not None:
            weights = weights.double()
            check_weights(weights, len(images.labels))
        if recipe.balance == "sampling":
            start = torch.ones(len(images.labels), dtype=torch.float64) if weights is None else weights
            weights = balanced(images.labels, classes, start)
        self.weights = weights
        self.counts = torch.bincount(images.labels, weights, minlength=classes)
        self.epoch_samples = len(images.labels) if weights is None else epoch_length(weights)

    def places(self, seed: int, epoch: int) -> Tensor | None:
        """What an epoch meets, before it is shuffled; None: every image once."""
        if self.weights is None:
            return None
        generator = torch.Generator().manual_seed(splitmix64(splitmix64(seed ^ DRAW) ^ epoch) >> 1)
        return drawn_places(self.weights, self.labels, generator)

    def prepare(self, method: Method, name: str, device: torch.device) -> None:
        """Tell the method of its classes."""
        method.set_class_counts(self.counts)
        if not self.logits:
            return
        if not method.adjustable:
            raise DsuiError(
                f"{name} takes no adjusted logits; balance by --balance sampling, or choose a method that does: "
                f"{', '.join(adjustable())}, or an ensemble of them."
            )
        method.adjust((self.counts / self.counts.sum()).log().float().to(device))

    def complete(self, method: Method) -> None:
        """When training has ended."""
        if self.logits:
            method.set_class_counts(torch.full_like(self.counts, int(self.counts.sum()) / len(self.counts)))
