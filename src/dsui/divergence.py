"""Kullback-Leibler divergences of diagonal Gaussians, and of mixtures of them, from a standard normal.

Like `dsui.density`, with first derivatives written out that can be differentiated again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dsui.differentiation import by_pytorch
from dsui.fused import fused


def divergence_from_standard_normal(means: Tensor, log_variances: Tensor) -> Tensor:
    """KL[N(a, diag b) || N(0, I)] = 1/2 sum_m (b + a^2 - ln b - 1): [..., M] -> [...]."""
    if by_pytorch():
        return 0.5 * _twice_the_divergence(means, log_variances)
    result: Tensor = _Divergence.apply(means, log_variances)  # type: ignore[no-untyped-call]
    return result


def mixture_divergence(
    means: Tensor, log_variances: Tensor, log_mixing: Tensor, class_weights: Tensor, through_mixing: bool
) -> Tensor:
    """sum_i w_i sum_j eta_ij { ln(K eta_ij) + KL[N(a_ij, diag b_ij) || N(0, I)] }, a scalar.

    means and log_variances [C, K, M], log_mixing [C, K] a ln softmax, class_weights [C] without gradient.
    Only with `through_mixing` does the eta before the Kullback-Leibler divergence have a gradient.
    """
    if by_pytorch():
        weights = class_weights[:, None] * log_mixing.exp()
        fixed = weights if through_mixing else weights.detach()
        divergences = 0.5 * _twice_the_divergence(means, log_variances)
        return (weights * (log_mixing + math.log(log_mixing.shape[1])) + fixed * divergences).sum()
    result: Tensor = _MixtureDivergence.apply(  # type: ignore[no-untyped-call]
        means, log_variances, log_mixing, class_weights, through_mixing
    )
    return result


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, means: Tensor, log_variances: Tensor) -> Tensor:
        ctx.save_for_backward(means, log_variances)
        return _twice_the_divergence(means, log_variances).mul_(0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """d a = a,  d ln b = (b - 1) / 2."""
        means, log_variances = ctx.saved_tensors
        return _divergence_gradients(means, log_variances, grad[..., None])


class _MixtureDivergence(torch.autograd.Function):
    """With c = w eta and D the Gaussians' divergences: d a = c a, d ln b = c (b - 1) / 2, d ln eta = c (ln eta [+ D]).

    The last holds up to a multiple of eta in each class, which the gradient of ln softmax drops.
    """

    @staticmethod
    def forward(
        ctx: Any,
        means: Tensor,
        log_variances: Tensor,
        log_mixing: Tensor,
        class_weights: Tensor,
        through_mixing: bool,
    ) -> Tensor:
        weights = log_mixing.exp().mul_(class_weights[:, None])
        log_ratios = log_mixing + math.log(log_mixing.shape[1])
        both = torch.add(log_ratios, _twice_the_divergence(means, log_variances), alpha=0.5)
        ctx.save_for_backward(means, log_variances, log_mixing, class_weights, weights, both)
        ctx.through_mixing = through_mixing
        return (weights * both).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        means, log_variances, log_mixing, class_weights, weights, both = ctx.saved_tensors
        again = torch.is_grad_enabled()
        if again:
            weights = log_mixing.exp() * class_weights[:, None]
            both = log_mixing + 0.5 * _twice_the_divergence(means, log_variances)
        d_both = grad * weights
        fixed = grad * weights.detach() if again and not ctx.through_mixing else d_both
        d_mixing = d_both * (both if ctx.through_mixing else log_mixing)
        return *_divergence_gradients(means, log_variances, fixed[..., None]), d_mixing, None, None


@fused
def _twice_the_divergence(means: Tensor, log_variances: Tensor) -> Tensor:
    return torch.addcmul(log_variances.expm1(), means, means).sub(log_variances).sum(-1)


@fused
def _divergence_gradients(means: Tensor, log_variances: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return grad * means, 0.5 * grad * log_variances.expm1()
