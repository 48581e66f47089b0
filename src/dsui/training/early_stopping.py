"""Early stopping: training ends when the held-out loss has not fallen for a while, and the best weights are kept.

After every epoch of the last phase the held-out loss is measured with the weights that the run would end with: averaged
ones, with batch norms estimated again, where the recipe averages (`dsui.training.ending`), otherwise the present ones.
With patience p the run ends after epoch e if none of the last p epochs was better than the best one, and that one's
weights are the run's. Patience begins when the rate has warmed up and SETTLED_STEPS were taken: before that, batch
norms predict by statistics of random weights, and with few images, whose epochs have few steps, the held-out loss
stands still for many epochs before it falls.

The best weights, their epoch and their loss are part of every checkpoint, so that a resumed run stops where a run that
was never killed stops, with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dsui.recipe import Recipe

NONE_YET = -1
SETTLED_STEPS = 50
"""What the running statistics of a batch norm were at the start then weighs 0.9^50 = 0.5 %."""


def first_epoch(recipe: Recipe, steps_per_epoch: int) -> int:
    """Counted from 0, the epoch from which on patience counts."""
    return max(recipe.rate_warm_up, math.ceil(SETTLED_STEPS / steps_per_epoch)) - 1


class EarlyStopping:
    """`epoch`, counted from 0, is the best so far, `loss` its held-out loss and `weights` its state dict. Patience
    counts from the epoch `first` on."""

    def __init__(self, patience: int, first: int = 0) -> None:
        self.patience, self.first = patience, first
        self.epoch, self.loss = NONE_YET, math.inf
        self.weights: dict[str, Tensor] = {}

    def see(self, epoch: int, loss: float, weights: Mapping[str, Tensor]) -> None:
        """Keep a copy of the weights if the loss is the lowest so far; of equal ones the first."""
        if loss < self.loss:
            self.epoch, self.loss = epoch, loss
            self.weights = {name: value.detach().clone() for name, value in weights.items()}

    def is_over(self, epoch: int) -> bool:
        """Whether training ends after this epoch."""
        return self.epoch != NONE_YET and epoch >= self._last

    def sentence(self, epochs: int) -> str | None:
        """For the user of a run of at most `epochs`; None where the last weights are the best."""
        if self.epoch in (NONE_YET, epochs - 1):
            return None
        ended = f"Stopped after epoch {self._last + 1} of {epochs}: t" if self._last < epochs - 1 else "T"
        return f"{ended}he weights of epoch {self.epoch + 1} are kept, whose held-out loss is lowest ({self.loss:.4g})."

    @property
    def _last(self) -> int:
        """The epoch after which training ends if none is better than the best so far."""
        return max(self.epoch, self.first) + self.patience

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "loss": self.loss, "weights": self.weights}

    def load(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.loss, self.weights = state["epoch"], state["loss"], dict(state["weights"])
