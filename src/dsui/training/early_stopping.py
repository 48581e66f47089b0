"""Early stopping: training ends when the held-out loss has not fallen for a while, and the best weights are kept.

After every epoch of the last phase the held-out loss is measured with the weights that the run would end with: averaged
ones, with batch norms estimated again, where the recipe averages (`dsui.training.ending`), otherwise the present ones.
With patience p the run ends after epoch e if none of the last p epochs was better than the best one, and that one's
weights are the run's.

The best weights, their epoch and their loss are part of every checkpoint, so that a resumed run stops where a run that
was never killed stops, with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

NONE_YET = -1


class EarlyStopping:
    """`epoch`, counted from 0, is the best so far, `loss` its held-out loss and `weights` its state dict."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.epoch, self.loss = NONE_YET, math.inf
        self.weights: dict[str, Tensor] = {}

    def see(self, epoch: int, loss: float, weights: Mapping[str, Tensor]) -> None:
        """Keep a copy of the weights if the loss is the lowest so far; of equal ones the first."""
        if loss < self.loss:
            self.epoch, self.loss = epoch, loss
            self.weights = {name: value.detach().clone() for name, value in weights.items()}

    def is_over(self, epoch: int) -> bool:
        """Whether training ends after this epoch."""
        return self.epoch != NONE_YET and epoch - self.epoch >= self.patience

    def sentence(self, epochs: int) -> str | None:
        """For the user of a run of at most `epochs`; None where the last weights are the best."""
        if self.epoch in (NONE_YET, epochs - 1):
            return None
        ended = f"Stopped after epoch {self.epoch + 1 + self.patience} of {epochs}: t" if self._stopped(epochs) else "T"
        return f"{ended}he weights of epoch {self.epoch + 1} are kept, whose held-out loss is lowest ({self.loss:.4g})."

    def _stopped(self, epochs: int) -> bool:
        return self.epoch + self.patience < epochs - 1

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "loss": self.loss, "weights": self.weights}

    def load(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.loss, self.weights = state["epoch"], state["loss"], dict(state["weights"])
