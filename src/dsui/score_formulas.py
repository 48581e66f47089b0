"""The formulas of the uncertainties: larger means more likely wrong or foreign.

All are computed in float64, and all but the mutual information in log space, so that a saturated softmax makes no ties.
`dsui.score_table` says which of them become scores, `dsui.scores` computes those.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.outputs import Outputs, share_of_radius


def max_probability(logits: Tensor) -> Tensor:
    """Max.P.: ln(1 - max_c p_c), p = softmax(logits). [B, C] -> [B]"""
    logits = logits.double()
    rest = logits.scatter(1, logits.argmax(1, keepdim=True), -torch.inf)
    return rest.logsumexp(1) - logits.logsumexp(1)


def entropy(logits: Tensor) -> Tensor:
    """Ent.: ln H[p] = ln sum_c p_c (-ln p_c). [B, C] -> [B]

    -ln p of the likeliest class is softplus of the log-odds x of the others. It keeps its digits when p is near 1, and
    its logarithm is x itself where exp(x) is lost beside 1, so that no odds are too small to count.
    """
    logits = logits.double()
    top = logits.argmax(1, keepdim=True)
    log_odds = logits.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True) - logits.gather(1, top)
    surprise = F.softplus(log_odds)
    log_p = logits - logits.logsumexp(1, keepdim=True)
    terms = log_p + (-log_p).clamp(max=torch.finfo(torch.float64).max).log()  # of p = 0: -infinity, not nan
    return terms.scatter(1, top, torch.where(log_odds < -40, log_odds, surprise.log()) - surprise).logsumexp(1)


def energy(logits: Tensor) -> Tensor:
    """-ln sum_c exp(y_c) (Liu et al., NeurIPS 2020). [B, C] -> [B]"""
    return -logits.double().logsumexp(1)


def max_logit(logits: Tensor) -> Tensor:
    """-max_c y_c (Hendrycks et al., ICML 2022). [B, C] -> [B]"""
    return -logits.double().amax(1)


def sphere_logits(outputs: Outputs) -> Tensor | None:
    """The logits as they were trained, b_c + (y_c - b_c) / min(1, |h| / sqrt(M)); see `dsui.methods.dsui`. [B, C]"""
    if outputs.norm is None or outputs.weight is None:
        return None
    share = share_of_radius(outputs.norm.double(), outputs.weight.shape[1])[:, None]
    bias = 0.0 if outputs.bias is None else outputs.bias.double()
    return (outputs.logits.double() - bias) / share + bias


def log_density(log_joint: Tensor) -> Tensor:
    """-ln MoGMM(z) = -logsumexp_i (ln w_i + ln GMM_i(z)). [B, C] -> [B]"""
    return -log_joint.double().logsumexp(1)


def log_mean_exp(values: Tensor) -> Tensor:
    """ln 1/T sum_t exp(values_t). [B, T, C] -> [B, C]"""
    return values.logsumexp(1) - math.log(values.shape[1])


def mutual_information(samples: Tensor) -> Tensor:
    """1/T sum_t KL(p_t | mean p) of log-probabilities, in float64. [B, T, C] -> [B]"""
    samples = samples.double()
    parts = samples.exp() * (samples - log_mean_exp(samples).unsqueeze(1))
    divergences = parts.nan_to_num(nan=0.0).sum(2)  # 0 ln 0 is 0
    return divergences.mean(1).clamp(min=0)


def floored_posterior(log_joint: Tensor, log_floor: float) -> Tensor:
    """Max.P. of the posterior proportional to w_i GMM_i(z) + floor: uniform where every density is below the floor.

    This is what the 1e-8 in the authors' code does; here the floor is a low quantile of the training images'
    own densities. [B, C] -> [B]
    """
    log_joint = log_joint.double()
    return max_probability(torch.logaddexp(log_joint, log_joint.new_tensor(log_floor)))


def sirc(logits: Tensor, secondary: Tensor, mean: float, deviation: float) -> Tensor:
    """ln(1 - max p) + softplus((secondary - (mean + 3 deviation)) / deviation), for a secondary *uncertainty*."""
    excess = (secondary.double() - (mean + 3 * deviation)) / deviation
    return max_probability(logits) + F.softplus(excess)


class Moments(NamedTuple):
    mean: float
    deviation: float

    @staticmethod
    def of(values: Tensor) -> Moments:
        """Of an uncertainty of training images; the deviation is never 0."""
        return Moments(values.mean().item(), values.std().clamp(min=torch.finfo(torch.float64).tiny).item())


class Reference(NamedTuple):
    """What scores need to know of the training images: moments of each secondary score, and the floor."""

    moments: dict[str, Moments]
    log_floor: float | None
