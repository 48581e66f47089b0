"""Log-densities of many diagonal Gaussians for a batch of features, as matrix products.

    ln N(z; mu, diag b) = -1/2 sum_m [ ln 2 pi + ln b_m + (z_m - mu_m)^2 / b_m ]
                        = <(z^2, z), (-1/(2b), mu/b)> + c(mu, b)

For B features and N Gaussians the right-hand side is one product of [B, 2M] with [2M, N], its gradient two
more of the same size, and no [B, N, M] tensor exists.

Squaring out the distance costs digits. Measured against float64, with denominator max(1, |ln N|):

* `precision="fast"` (float32 products, float64 for M <= 32 where it costs nothing): at most 1e-5 for
  |z| and |mu| up to sqrt(M) and variances spread over 1e-2 to 1e2. The absolute error is about one
  float32 rounding of sum_m (z_m^2 + mu_m^2) / b_m. Where all variances are small and a feature lies
  within them, that sum cancels until ln N is near 0, and the error, still about 1e-3 nats, is no longer
  1e-5 of it; no float32 sum of M terms does better there.
* `precision="exact"` (the same products in float64 after moving the origin to the mean of the means):
  at most 1e-6 for norms to 1e3, variances from 1e-4 to 1e4 and a common offset of 1e4. Below M = 64 a feature
  within a deviation of 1e-2 of such a mean, where ln N is near 0, was measured to lose 1.3e-6.

Products are true float32 or float64 whatever the autocast state and the global TF32 setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dsui.fused import fused, uncompiled

Precision = Literal["fast", "exact"]
LN_2PI = math.log(2 * math.pi)
NARROW = 32


@uncompiled
def gaussian_log_prob(
    features: Tensor,
    means: Tensor,
    log_variances: Tensor,
    precision: Precision = "fast",
    min_log_variance: float = -math.inf,
) -> Tensor:
    """ln N(z_b; mu_n, diag max(exp(v_n), floor)) for every feature b and Gaussian n.

    features [B, M], means and log_variances [..., M]; returns [B, ...], float32 or float64 for "fast"
    (the wider of float32 and the inputs' type) and float64 for "exact".
    Below `min_log_variance` a log-variance counts as that minimum, and its gradient is that of
    projected descent: it may raise the variance, never lower it further.
    """
    size = means.shape[-1]
    result = torch.promote_types(torch.promote_types(features.dtype, means.dtype), torch.float32)
    if precision == "exact":
        result = torch.float64
    working = torch.float64 if size <= NARROW else result
    z, mu, v = (t.reshape(-1, size).to(working) for t in (features, means, log_variances))
    if precision == "exact":
        origin = mu.detach().mean(0)
        z, mu = z - origin, mu - origin
    log_prob: Tensor = _GaussianLogProb.apply(  # type: ignore[no-untyped-call]
        z, mu, v, min_log_variance
    )
    return log_prob.to(result).view(features.shape[0], *means.shape[:-1])


def mixture_log_prob(component_log_prob: Tensor, log_weights: Tensor, temperature: Tensor | None = None) -> Tensor:
    """logsumexp_j (ln eta_ij + ln N_ij / tau) over the last dimension: [B, C, K], [C, K] -> [B, C].

    Without a temperature this is the log-density of a mixture. With tau > 1 it is a score, not a normalised
    density: components are flattened before they are summed, weights are not.
    """
    result: Tensor = _MixtureLogProb.apply(  # type: ignore[no-untyped-call]
        component_log_prob, log_weights, temperature
    )
    return result


@fused
def mixture_mean(means: Tensor, weights: Tensor) -> Tensor:
    """sum_j eta_ij mu_ij: [C, K, M], [C, K] -> [C, M]."""
    return (weights[..., None] * means).sum(1)


def divergence_from_standard_normal(means: Tensor, log_variances: Tensor) -> Tensor:
    """KL[N(a, diag b) || N(0, I)] = 1/2 sum_m (b + a^2 - ln b - 1): [..., M] -> [...]."""
    result: Tensor = _Divergence.apply(means, log_variances)  # type: ignore[no-untyped-call]
    return result


def mixture_divergence(
    means: Tensor, log_variances: Tensor, log_mixing: Tensor, class_weights: Tensor, through_mixing: bool
) -> Tensor:
    """sum_i w_i sum_j eta_ij { ln(K eta_ij) + KL[N(a_ij, diag b_ij) || N(0, I)] }, a scalar.

    means and log_variances [C, K, M], log_mixing [C, K] a ln softmax, class_weights [C] without gradient.
    Only with `through_mixing` does the eta before the Kullback-Leibler divergence have a gradient.
    """
    result: Tensor = _MixtureDivergence.apply(  # type: ignore[no-untyped-call]
        means, log_variances, log_mixing, class_weights, through_mixing
    )
    return result


@uncompiled
def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T in the operands' own precision, forward and backward: [B, M], [N, M] -> [B, N]."""
    result: Tensor = _Product.apply(left, right)  # type: ignore[no-untyped-call]
    return result


@fused
def natural_parameters(means: Tensor, log_variances: Tensor, min_log_variance: float) -> tuple[Tensor, Tensor]:
    """(-1/(2b), mu/b) side by side [..., 2M] and c(mu, b) = -1/2 sum_m [ln 2 pi + ln b + mu^2 / b] [...]."""
    log_b = log_variances if min_log_variance == -math.inf else log_variances.clamp(min=min_log_variance)
    inverse = torch.exp(-log_b)
    linear = means * inverse
    constant = torch.addcmul(log_b, means, linear).sum(-1).add(means.shape[-1] * LN_2PI).mul(-0.5)
    return torch.cat([inverse.mul(-0.5), linear], -1), constant


@contextmanager
def true_precision(device: torch.device) -> Iterator[None]:
    """Run matrix products in the type of their operands: no autocast, no TF32, no bfloat16 emulation.

    PyTorch keeps the setting in two interfaces at once (one older, one per backend) and refuses products
    where they disagree, so both are set and both are restored.
    """
    cuda, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    per_backend = cuda.fp32_precision, cpu.fp32_precision
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # the two interfaces already disagree; the older one cannot be read or restored
        legacy = None
    try:
        if legacy is None:
            cuda.fp32_precision = cpu.fp32_precision = "ieee"
        else:
            torch.set_float32_matmul_precision("highest")
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
        cuda.fp32_precision, cpu.fp32_precision = per_backend


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        with true_precision(left.device):
            return left @ right.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        with true_precision(grad.device):
            return (
                grad @ right if ctx.needs_input_grad[0] else None,
                grad.T @ left if ctx.needs_input_grad[1] else None,
            )


class _MixtureLogProb(torch.autograd.Function):
    """logsumexp_j x_j = max_j x_j - ln max_j softmax_j(x), whose gradient is softmax(x).

    It is written out to save operations: at ten classes each of them costs as much as the arithmetic in it.
    """

    @staticmethod
    def forward(ctx: Any, components: Tensor, log_weights: Tensor, temperature: Tensor | None) -> Tensor:
        joint = log_weights + components if temperature is None else torch.addcdiv(log_weights, components, temperature)
        shares, largest = joint.softmax(-1), joint.amax(-1)
        ctx.save_for_backward(shares, temperature)
        return torch.fmax(largest, largest - shares.amax(-1).log())  # where all are impossible, shares are nan

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        shares, temperature = ctx.saved_tensors
        d_joint = shares * grad[..., None]
        d_weights = d_joint.sum(0) if ctx.needs_input_grad[1] else None
        return d_joint if temperature is None else d_joint / temperature, d_weights, None


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, means: Tensor, log_variances: Tensor) -> Tensor:
        ctx.save_for_backward(means, log_variances)
        return _twice_the_divergence(means, log_variances).mul_(0.5)

    @staticmethod
    @once_differentiable
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
        ctx.save_for_backward(means, log_variances, weights, both if through_mixing else log_mixing)
        return (weights * both).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        means, log_variances, weights, slope = ctx.saved_tensors
        d_both = grad * weights
        return *_divergence_gradients(means, log_variances, d_both[..., None]), d_both * slope, None, None


@fused
def _twice_the_divergence(means: Tensor, log_variances: Tensor) -> Tensor:
    return torch.addcmul(log_variances.expm1(), means, means).sub(log_variances).sum(-1)


@fused
def _divergence_gradients(means: Tensor, log_variances: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return grad * means, 0.5 * grad * log_variances.expm1()


class _GaussianLogProb(torch.autograd.Function):
    """[B, M], [N, M], [N, M] -> [B, N], keeping no tensor larger than its inputs and output for the backward pass."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, means: Tensor, log_variances: Tensor, min_log_variance: float) -> Tensor:
        natural, constant = natural_parameters(means, log_variances, min_log_variance)
        statistics = torch.cat([features.square(), features], 1)
        ctx.save_for_backward(statistics, means, log_variances, natural)
        ctx.min_log_variance = min_log_variance
        with true_precision(features.device):
            return torch.addmm(constant, statistics, natural.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        statistics, means, log_variances, natural = ctx.saved_tensors
        d_features = d_means = d_log_variances = None
        with true_precision(grad.device):
            if ctx.needs_input_grad[0]:
                d_square, d_linear = (grad @ natural).chunk(2, 1)
                d_features = torch.addcmul(d_linear, statistics.chunk(2, 1)[1], d_square, value=2)
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
                d_means, d_log_variances = _parameter_gradients(
                    means, log_variances, natural, grad.T @ statistics, grad.sum(0)[:, None], ctx.min_log_variance
                )
        return d_features, d_means, d_log_variances, None


@fused
def _parameter_gradients(
    means: Tensor,
    log_variances: Tensor,
    natural: Tensor,
    d_natural: Tensor,
    d_constant: Tensor,
    min_log_variance: float,
) -> tuple[Tensor, Tensor]:
    """The chain rule through `natural_parameters`, with P = -1/(2b), Q = mu/b and their gradients p, q and c:

    y = -2 P q - c/2 Q,    d mu = y - c/2 Q,    d ln b = -P p - mu y - c/2
    """
    (quadratic, linear), (d_quadratic, d_linear) = natural.chunk(2, 1), d_natural.chunk(2, 1)
    half = -0.5 * d_constant
    by_constant = half * linear
    y = torch.addcmul(by_constant, quadratic, d_linear, value=-2)
    d_means = y + by_constant
    d_log_variances = torch.addcmul(half, means, y, value=-1)
    d_log_variances = torch.addcmul(d_log_variances, quadratic, d_quadratic, value=-1)
    if min_log_variance > -math.inf:
        floored = log_variances < min_log_variance
        d_log_variances = torch.where(floored, d_log_variances.clamp(max=0.0), d_log_variances)
    return d_means, d_log_variances
