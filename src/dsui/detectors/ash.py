"""ASH (Djurisic et al., ICLR 2023): the energy after all but the largest activations of each sample are cut.

Of M activations z >= 0 the k = M - round(M percentile / 100) largest are kept. With s the sum of all activations and s'
the sum of those kept, a kept activation becomes

    "b"  s / k        "s"  z exp(s / s')        "p"  z

Features are treated as if they came from a ReLU: a negative one counts as 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dsui.checks import check_choice
from dsui.detectors.detector import Detector, last_layer
from dsui.outputs import Outputs
from dsui.scores import energy


class ASH(Detector):
    """Needs no fitting."""

    needs_fit = False
    needs_weight = True

    def __init__(self, variant: Literal["b", "s", "p"] = "b", percentile: float = 90.0) -> None:
        check_choice("variant", variant, ("b", "s", "p"))
        if not 0 <= percentile < 100:
            raise ValueError(f"percentile must be at least 0 and below 100, got {percentile}.")
        self.variant, self.percentile = variant, percentile

    def _score(self, outputs: Outputs) -> Tensor:
        z = outputs.features.relu()
        width = z.shape[1]
        kept, where = z.topk(max(1, width - round(width * self.percentile / 100)))
        before, after = z.sum(1, keepdim=True), kept.sum(1, keepdim=True)
        if self.variant == "b":
            kept = (before / kept.shape[1]).expand_as(kept)
        elif self.variant == "s":
            kept = kept * (before / after.clamp(min=torch.finfo(torch.float64).tiny)).exp()
        return energy(last_layer(outputs, torch.zeros_like(z).scatter(1, where, kept)))
