"""The sums of an epoch so far: the loss and its terms, hits and samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

HITS, SAMPLES = "hits", "samples"
LARGEST_LOSS = 1e6
"""A loss beyond this has diverged."""


class Meter:
    """Sums over an epoch, on the device: the loss and its terms, hits, samples, and the first step that diverged.

    They are one vector, because adding to them is part of every step, where each operation costs a kernel.
    """

    def __init__(self, device: torch.device, batch: int) -> None:
        self.device, self.batch = device, batch
        self.names: tuple[str, ...] = ()
        self.totals = torch.zeros(0, dtype=torch.float64, device=device)
        self.weights = self.totals
        self.diverged_at = torch.full((), -1, dtype=torch.int64, device=device)

    def add(self, step: Tensor, means: dict[str, Tensor], hits: Tensor | None) -> None:
        """`means` over a batch, the loss among them; `hits` None where no classifier ran."""
        counts = {**({} if hits is None else {HITS: hits.float()}), SAMPLES: torch.ones_like(means["loss"])}
        if (names := (*means, *counts)) != self.names:
            self._rename(names)
        self.totals.add_(self.weights * torch.stack([*means.values(), *counts.values()]))
        healthy = means["loss"].abs() < LARGEST_LOSS  # false for nan
        first = (self.diverged_at < 0) & ~healthy
        self.diverged_at.copy_(torch.where(first, step, self.diverged_at))

    def sums(self) -> dict[str, float]:
        return dict(zip(self.names, self.totals.tolist(), strict=True))

    def reset(self) -> None:
        self.totals.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in zip(self.names, self.totals, strict=True)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._rename(tuple(state))
        self.restore(state)

    def restore(self, values: dict[str, Tensor]) -> None:
        """In place, because a captured graph holds the vector; names without a value become 0."""
        for index, name in enumerate(self.names):
            self.totals[index] = values.get(name, 0.0)

    def _rename(self, names: Sequence[str]) -> None:
        values = self.state_dict()
        self.names = tuple(names)
        self.totals = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        weights = [1.0 if name == HITS else float(self.batch) for name in names]
        self.weights = torch.tensor(weights, device=self.device)
        self.restore(values)
