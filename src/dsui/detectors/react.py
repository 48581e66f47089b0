"""ReAct (Sun et al., NeurIPS 2021): u = -ln sum_c exp(W min(z, t) + b)_c, the energy of clipped features.

t is a percentile of all fitted activations: the least one that `percentile` per cent of them do not exceed.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from dsui.detectors.detector import CHUNK_ELEMENTS, Detector, last_layer
from dsui.outputs import Outputs
from dsui.scores import energy

HALVINGS = 64
"""Of the range of the activations: more than float32 resolves, and 5e-20 of the range in float64."""


class ReAct(Detector):
    """Meant for features from a ReLU, whose rare large activations it clips; it clips only from above."""

    needs_weight = True
    learns: ClassVar = {"threshold": float}

    def __init__(self, percentile: float = 90.0) -> None:
        if not 0 <= percentile <= 100:
            raise ValueError(f"percentile must be between 0 and 100, got {percentile}.")
        self.percentile = percentile

    def _fit(self, train: Outputs) -> None:
        self.threshold = quantile(train.features, self.percentile / 100)

    def _score(self, outputs: Outputs) -> Tensor:
        return energy(last_layer(outputs, outputs.features.clamp(max=self.threshold)))


def quantile(values: Tensor, share: float) -> float:
    """The least of [N, M] values that at least `share` of them do not exceed, found by counting, without a copy."""
    wanted = math.ceil(share * values.numel())
    low, high = (float(end) for end in values.aminmax())
    if _count(values, low) >= wanted:
        return low
    for _ in range(HALVINGS):
        middle = float(values.new_tensor(low / 2 + high / 2))
        if not low < middle < high:
            break
        if _count(values, middle) >= wanted:
            high = middle
        else:
            low = middle
    return high


def _count(values: Tensor, limit: float) -> int:
    parts = values.split(max(1, CHUNK_ELEMENTS // values.shape[1]))
    return int(sum(torch.count_nonzero(part <= limit) for part in parts))
