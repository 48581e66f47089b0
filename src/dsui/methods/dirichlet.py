"""Dirichlet distributions over class probabilities, as prior networks use them (Malinin and Gales, 2018 and 2019).

    alpha_c = exp(y_c),  alpha_0 = sum_c alpha_c,  mean p_c = alpha_c / alpha_0 = softmax(y)_c

    KL[Dir(a) || Dir(b)] = ln G(a_0) - sum ln G(a_c) - ln G(b_0) + sum ln G(b_c) + sum (a_c - b_c) (psi(a_c) - psi(a_0))

Two uncertainties beside Max.P. and Ent. of the mean: the mutual information between label and class probabilities,
H[p] minus the expected entropy, and the differential entropy. The third in use, the expected pairwise divergence
(C - 1) / alpha_0, orders images as the energy of y does.

With r(a) = ln a - psi(a) and s(a) = ln G(a) - (a - 1/2) ln a + a - ln(2 pi) / 2, both of which vanish for large a, the
large terms cancel on paper instead of in floating point:

    I = sum p_c (g(alpha_c) - g(alpha_0)),  g(a) = psi(a + 1) - ln a
    D = (sum ln p_c - (C - 1) ln(alpha_0 / 2 pi)) / 2 + sum s(alpha_c) - s(alpha_0)
        + sum (alpha_c - 1) r(alpha_c) - (alpha_0 - C) r(alpha_0)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_LOGIT = 300.0
"""Scores clamp |y| to this: e^300 can be squared in float64."""
SERIES_FROM = 32.0
"""From here on, the truncated asymptotic series of r and s below are exact to 12 digits."""


def kl_divergence(first: Tensor, second: Tensor) -> Tensor:
    """KL[Dir(first) || Dir(second)]. [..., C] each -> [...]"""
    total = first.sum(-1, keepdim=True)
    normalizers = _log_normalizer(second) - _log_normalizer(first)
    return normalizers + ((first - second) * (torch.digamma(first) - torch.digamma(total))).sum(-1)


def label_concentrations(labels: Tensor, num_classes: int, concentration: float) -> Tensor:
    """1 + b for the label and 1 for every other class, in float64. [B] -> [B, C]

    It compares instead of scattering: PyTorch 2.11 compiles a scatter into ones to float32 and reads the result as
    float64; 2.13 does not.
    """
    own = labels[:, None] == torch.arange(num_classes, device=labels.device)
    return 1 + concentration * own.double()


def bounded_concentrations(logits: Tensor, smallest: float, largest: float) -> Tensor:
    """exp(y) in float64, within bounds; beyond a bound, y keeps the gradient it has there. [B, C] -> [B, C]

    Where an image's largest y is too large, all its y are lowered by the same amount, so that the differences between
    classes stay.
    """
    logits = logits.double()
    excess = (logits.amax(-1, keepdim=True) - math.log(largest)).clamp_min(0)
    bounded = (logits - excess).clamp_min(math.log(smallest))
    return (logits + (bounded - logits).detach()).exp()


def mutual_information(logits: Tensor) -> Tensor:
    """I[label, probabilities], at least 0. [B, C] -> [B]"""
    log_alpha, log_total = _log_concentrations(logits)
    gaps = _mean_gap(log_alpha) - _mean_gap(log_total)
    return ((log_alpha - log_total).exp() * gaps).sum(-1).clamp_min(0)  # rounding may leave -1e-16


def differential_entropy(logits: Tensor) -> Tensor:
    """The entropy of the Dirichlet, with respect to the Lebesgue measure of C - 1 probabilities. [B, C] -> [B]"""
    log_alpha, log_total = _log_concentrations(logits)
    alpha, total, classes = log_alpha.exp(), log_total.exp(), logits.shape[-1]
    spread = (log_alpha - log_total).sum(-1) - (classes - 1) * (log_total[..., 0] - math.log(2 * math.pi))
    stirling = _stirling_rest(alpha).sum(-1) - _stirling_rest(total)[..., 0]
    digammas = ((alpha - 1) * _digamma_rest(alpha)).sum(-1) - ((total - classes) * _digamma_rest(total))[..., 0]
    return spread / 2 + stirling + digammas


def _log_normalizer(alpha: Tensor) -> Tensor:
    """ln of the Dirichlet's normalising integral. [..., C] -> [...]"""
    return torch.lgamma(alpha).sum(-1) - torch.lgamma(alpha.sum(-1))


def _log_concentrations(logits: Tensor) -> tuple[Tensor, Tensor]:
    """ln alpha [B, C] and ln alpha_0 [B, 1] in float64."""
    log_alpha = logits.double().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
    return log_alpha, log_alpha.logsumexp(-1, keepdim=True)


def _mean_gap(log_alpha: Tensor) -> Tensor:
    """g of ln a: psi(a + 1) - ln a, about 1 / 2a for large a."""
    alpha = log_alpha.exp()
    return torch.where(alpha < SERIES_FROM, torch.digamma(alpha + 1) - log_alpha, 1 / alpha - _digamma_rest(alpha))


def _digamma_rest(alpha: Tensor) -> Tensor:
    """r(a) = ln a - psi(a)"""
    inverse = 1 / alpha
    square = inverse * inverse
    series = inverse / 2 + square * (1 / 12 - square * (1 / 120 - square / 252))
    return torch.where(alpha < SERIES_FROM, alpha.log() - torch.digamma(alpha), series)


def _stirling_rest(alpha: Tensor) -> Tensor:
    """s(a) = ln G(a) - (a - 1/2) ln a + a - ln(2 pi) / 2"""
    inverse = 1 / alpha
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square / 1260))
    direct = torch.lgamma(alpha) - (alpha - 0.5) * alpha.log() + alpha - math.log(2 * math.pi) / 2
    return torch.where(alpha < SERIES_FROM, direct, series)
