"""Uncertainties from one forward pass: larger means more likely wrong or foreign.

All are computed in log space, so that a saturated softmax makes no ties.
"""

from __future__ import annotations

import torch
from torch import Tensor


def max_probability(logits: Tensor) -> Tensor:
    """Max.P.: ln(1 - max_c p_c), p = softmax(logits). [B, C] -> [B]"""
    logits = logits.double()
    rest = logits.scatter(1, logits.argmax(1, keepdim=True), -torch.inf)
    return rest.logsumexp(1) - logits.logsumexp(1)


def entropy(logits: Tensor) -> Tensor:
    """Ent.: ln H[p] = ln sum_c p_c (-ln p_c). [B, C] -> [B]

    -ln p of the likeliest class is log1p of the odds of the others, which keeps its digits when p is near 1.
    """
    logits = logits.double()
    top = logits.argmax(1, keepdim=True)
    odds = (logits.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True) - logits.gather(1, top)).exp()
    log_p = (logits - logits.logsumexp(1, keepdim=True)).scatter(1, top, -torch.log1p(odds))
    return torch.logsumexp(log_p + torch.log(-log_p), 1)


def energy(logits: Tensor) -> Tensor:
    """-ln sum_c exp(y_c) (Liu et al., NeurIPS 2020). [B, C] -> [B]"""
    return -logits.double().logsumexp(1)


def log_density(log_joint: Tensor) -> Tensor:
    """-ln MoGMM(z) = -logsumexp_i (ln w_i + ln GMM_i(z)). [B, C] -> [B]"""
    return -log_joint.double().logsumexp(1)
