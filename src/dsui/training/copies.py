"""Copies of a batch behind its own images, each with a loss of its own.

    L = L(x, t) + w_d sum_r L(turn_r x, t + r C) + w_m [ a L(m, t) + (1 - a) L(m, t') ],    m = a x + (1 - a) x'

Turned copies are what doubles are trained on (`dsui.methods.doubles`): one copy in a random turn, or one in every turn.
The mixed copy is RegMixup (Pinto et al., NeurIPS 2022): x' is the image before x in the shuffled batch, and one number
a ~ Beta(10, 10) serves the whole step. All copies pass the network together with the images, so batch-norm statistics
are over all of them. L is the method's whole loss, its regulariser included.

Turns depend on (seed, epoch, sample) and a on (seed, step), so that a resumed run sees the same copies. With several
processes x' comes from the same process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsui.data.augment import drawn_quarters, splitmix64, turned
from dsui.errors import DsuiError
from dsui.methods.doubles import TURNS
from dsui.methods.method import Method
from dsui.methods.registry import taking_copies
from dsui.recipe import Recipe

CONCENTRATION = 10.0
"""Both parameters of RegMixup's Beta distribution, as published: most images are mixed nearly half and half."""


class Copies:
    """The copies that a recipe wants of every batch; without any, all functions return what they are given."""

    def __init__(
        self,
        method: Method,
        recipe: Recipe,
        num_classes: int,
        seed: int,
        steps: int,
        device: torch.device,
        outliers: bool = False,
    ) -> None:
        """`steps` is how many the whole training has; `outliers` whether a batch of foreign images follows."""
        self.turned, self.num_classes, self.seed = method.copies, num_classes, seed
        self.turned_weight, self.mixed_weight = recipe.doubles_weight, recipe.regmixup
        self.shares: Tensor | None = None
        if recipe.regmixup > 0:
            if not method.takes_copies:
                raise DsuiError(
                    f"RegMixup needs a method whose loss is a mean over images: {', '.join(taking_copies())}, or an "
                    "ensemble of them; leave out --set regmixup."
                )
            if outliers:
                raise DsuiError("RegMixup and --outliers do not go together; leave one of them out.")
            generator = np.random.default_rng(splitmix64(splitmix64(seed) ^ steps))
            drawn = generator.beta(CONCENTRATION, CONCENTRATION, steps)
            self.shares = torch.from_numpy(drawn).float().to(device)

    def with_turned(
        self, images: Tensor, labels: Tensor, indices: Tensor, epoch: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Inputs [B (1 + turned), ...] and their labels among the 4 C."""
        if self.turned == 0:
            return images, labels
        if images.shape[2] != images.shape[3]:
            raise DsuiError(
                f"images of {images.shape[2]} x {images.shape[3]} pixels cannot be turned by 90 degrees; make them "
                "square, or train with --set doubles=none."
            )
        if self.turned == 1:
            quarters = drawn_quarters(self.seed, indices, epoch)
            parts = [turned(images, quarters)]
        else:
            parts = [images.rot90(quarter, (2, 3)) for quarter in range(1, TURNS)]
            quarters = torch.arange(1, TURNS, device=labels.device).repeat_interleave(len(labels))
        doubles = labels.repeat(self.turned) + quarters * self.num_classes
        return torch.cat([images, *parts]), torch.cat([labels, doubles])

    def with_mixed(self, inputs: Tensor, own: int, step: int | Tensor) -> Tensor:
        """The inputs, and behind them a mixed copy of the first `own`."""
        if self.shares is None:
            return inputs
        images, share = inputs[:own], self._share(step)
        return torch.cat([inputs, share * images + (1 - share) * images.roll(1, 0)])

    def loss(self, method: Method, output: Any, labels: Tensor, step: Tensor) -> tuple[Tensor, int]:
        """The sum of the losses, and B; `labels` are those of `with_turned`. Fills the method's `terms`."""
        own = len(labels) // (1 + self.turned)
        if self.turned == 0 and self.shares is None:
            return method.loss(output, labels), own
        value = method.loss(method.rows(output, slice(own)), labels[:own])
        terms = dict(method.terms)
        if self.turned:
            doubles = slice(own, len(labels))
            part = self.turned * method.loss(method.rows(output, doubles), labels[doubles])
            value, terms["turned"] = value + self.turned_weight * part, part.detach()
        if self.shares is not None:
            mixed, share = method.rows(output, slice(len(labels), len(labels) + own)), self._share(step)
            first, second = method.loss(mixed, labels[:own]), method.loss(mixed, labels[:own].roll(1, 0))
            part = share * first + (1 - share) * second
            value, terms["mixed"] = value + self.mixed_weight * part, part.detach()
        method.terms = terms
        return value, own

    def _share(self, step: int | Tensor) -> Tensor:
        assert self.shares is not None
        place = torch.as_tensor(step, device=self.shares.device).clamp(max=len(self.shares) - 1)
        return self.shares.index_select(0, place.view(1))[0]
