"""Generalised entropy (Liu et al., CVPR 2023): u = sum over the likeliest classes of p^gamma (1 - p)^gamma."""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.checks import check_at_least, check_positive
from dsui.detectors.detector import Detector
from dsui.outputs import Outputs
from dsui.scores import max_probability


class GEN(Detector):
    """Needs no fitting; `top` classes are summed, or all where there are fewer."""

    needs_fit = False

    def __init__(self, gamma: float = 0.1, top: int = 100) -> None:
        check_positive("gamma", gamma)
        check_at_least("top", top, 1)
        self.gamma, self.top = gamma, top

    def _score(self, outputs: Outputs) -> Tensor:
        log_p = outputs.logits.log_softmax(1).topk(min(self.top, outputs.logits.shape[1])).values
        # Only the likeliest class can come so near to 1 that 1 - p loses digits.
        log_rest = torch.cat([max_probability(outputs.logits)[:, None], torch.log1p(-log_p[:, 1:].exp())], 1)
        return (self.gamma * (log_p + log_rest)).exp().sum(1)
