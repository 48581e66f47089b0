"""How a run is trained, as data: all settings of a run but data, backbone, method and seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dsui.errors import DsuiError
from dsui.head import Regularizer
from dsui.objectives import Objective


class RecipeError(DsuiError):
    """A recipe cannot be found, read or used; the sentence names the key or file and what is expected."""


@dataclass(frozen=True)
class Recipe:
    """All settings of a run but data, backbone, method and seed. Rates are per step, lengths in epochs."""

    name: str
    epochs: int
    batch: int
    optimizer: Literal["adam", "sgd"]
    peak_rate: float
    schedule: Literal["one-cycle", "cosine", "held-cosine"]
    cycle: int
    """Epochs of the one-cycle's rise and fall."""
    rate_warm_up: int
    """Epochs of linear rise before a cosine."""
    momentum: float
    """Of SGD."""
    nesterov: bool
    weight_decay: float
    decoupled_decay: bool
    """Decay beside the gradient (AdamW) instead of in it (L2)."""
    decay_norms: bool
    """Whether batch-norm parameters and biases decay."""
    decay_mixture: bool
    """Whether means, variances, mixing weights and the logit scale decay."""
    neck: bool
    """Whether the paper's three-layer fully connected net stands between backbone and head."""
    dropout: float
    """Of the neck."""
    released_start: bool
    """Whether the backbone starts as in the authors' code."""
    padding: int
    """Pixels by which a crop is shifted at most."""
    flip: bool
    """Whether half of the training images are mirrored."""
    mean: tuple[float, ...]
    """Subtracted from pixels in [0, 1], per channel or one for all; then divided by `std`."""
    std: tuple[float, ...]
    head: Literal["mogmm", "released"]
    components: int
    """Gaussians per class."""
    objective: Objective
    rho: float | None
    """Weight of the push; None is the objective's own default."""
    gamma: float
    """Weight of the regulariser."""
    regularizer: Regularizer | None
    density_warm_up: int
    """Epochs of cross-entropy alone before the density terms begin."""
    initialize: bool
    """Whether the mixtures start from k-means and EM when they begin."""
    average: Literal["none", "ema", "swa"]
    ema_decay: float
    swa_start: float
    """Share of the epochs after which weights are averaged, and a held cosine is held."""
    sam: float
    """Radius of sharpness-aware minimisation; 0 is off."""
    clip: float
    """Largest norm of the gradient; 0 is off."""
    bfloat16: bool
    """Run convolutions and hidden layers in bfloat16 on a GPU."""

    def __post_init__(self) -> None:
        for key, holds, expected in self._ranges():
            if not holds:
                raise RecipeError(f"recipe {self.name!r}: {key} is {getattr(self, key)!r}; it must be {expected}.")

    def _ranges(self) -> Iterator[tuple[str, bool, str]]:
        """Key, whether its value can be trained with, and what is expected of it."""
        yield "epochs", self.epochs >= 1, "at least 1"
        yield "batch", self.batch >= 2, "at least 2"
        yield "peak_rate", 0 < self.peak_rate < math.inf, "positive and finite"
        if self.schedule == "one-cycle":
            yield "cycle", 1 <= self.cycle <= self.epochs, f"between 1 and the {self.epochs} epochs"
        yield "rate_warm_up", 0 <= self.rate_warm_up < self.epochs, f"at least 0 and below the {self.epochs} epochs"
        yield "momentum", 0 <= self.momentum < 1, "at least 0 and below 1"
        if self.optimizer == "sgd" and self.momentum == 0:
            yield "nesterov", not self.nesterov, "false where momentum is 0"
        yield "dropout", 0 <= self.dropout < 1, "at least 0 and below 1"
        yield "padding", self.padding >= 0, "at least 0"
        yield "mean", len(self.mean) >= 1 and all(map(math.isfinite, self.mean)), "at least one finite number"
        yield "std", all(0 < value < math.inf for value in self.std), "positive and finite"
        yield "std", len(self.std) == len(self.mean), f"as long as mean, which has {len(self.mean)} values"
        yield "components", self.components >= 1, "at least 1"
        for key in ("weight_decay", "gamma", "sam", "clip"):
            yield key, 0 <= getattr(self, key) < math.inf, "at least 0 and finite"
        yield "rho", self.rho is None or 0 <= self.rho < math.inf, "null, or at least 0 and finite"
        warm_up = f"between 0 and the {self.epochs} epochs"
        yield "density_warm_up", 0 <= self.density_warm_up <= self.epochs, warm_up
        yield "ema_decay", 0 < self.ema_decay < 1, "between 0 and 1, both excluded"
        yield "swa_start", 0 <= self.swa_start < 1, "at least 0 and below 1"
        if self.schedule == "held-cosine":
            rises = self.rate_warm_up / self.epochs
            yield "swa_start", self.swa_start >= rises, f"at least {rises:g}, where a held cosine has risen"
            yield "average", self.average != "none", "swa or ema where the rate is held: only a mean comes to rest"
