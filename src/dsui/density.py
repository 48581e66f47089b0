"""Log-densities of many diagonal Gaussians for a batch of features, as matrix products.

    ln N(z; mu, diag b) = -1/2 sum_m [ ln 2 pi + ln b_m + (z_m - mu_m)^2 / b_m ]
                        = <(z^2, z), (-1/(2b), mu/b)> + c(mu, b)

For B features and N Gaussians the right-hand side is one product of [B, 2M] with [2M, N], its gradient two
more of the same size, and no [B, N, M] tensor exists.

Squaring out the distance costs digits. Measured against float64, with denominator max(1, |ln N|):

* `precision="fast"` (float32 products, float64 for M <= 32 where it costs nothing): at most 2e-5 for
  |z| and |mu| up to sqrt(M) and variances spread over 1e-2 to 1e2; 1.2e-5 was the largest of 20 draws for
  each width, and another processor sums in another order. The absolute error was at most 19 times 2^-24 of the
  sum of the terms' magnitudes. Where all variances are small and a feature lies
  within them, that sum cancels until ln N is near 0, and the error, still about 1e-3 nats, is no longer
  2e-5 of it; no float32 sum of M terms does better there.
* `precision="exact"` (the same products in float64 after moving the origin to the mean of the means):
  at most 1e-6 for norms to 1e3, variances from 1e-4 to 1e4 and a common offset of 1e4. Below M = 64 a feature
  within a deviation of 1e-2 of such a mean, where ln N is near 0, was measured to lose 1.3e-6.

Products are true float32 or float64 whatever the autocast state and the global TF32 setting.

Every function can be differentiated any number of times (`create_graph=True`) and by `torch.func`. First derivatives
are written out below; when they are recorded, they are computed from the inputs again, in the same formulas.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from dsui.differentiation import by_pytorch, records
from dsui.fused import fused, uncompiled
from dsui.matrix_product import multiply, product, true_precision

Precision = Literal["fast", "exact"]
LN_2PI = math.log(2 * math.pi)
NARROW = 32


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
    compiled = torch.compiler.is_compiling()
    return _gaussian_log_prob(features, means, log_variances, precision, min_log_variance, compiled)


@uncompiled
def _gaussian_log_prob(
    features: Tensor,
    means: Tensor,
    log_variances: Tensor,
    precision: Precision,
    min_log_variance: float,
    compiled: bool,
) -> Tensor:
    size = means.shape[-1]
    result = torch.promote_types(torch.promote_types(features.dtype, means.dtype), torch.float32)
    if precision == "exact":
        result = torch.float64
    working = torch.float64 if size <= NARROW else result
    z, mu, v = (t.reshape(-1, size).to(working) for t in (features, means, log_variances))
    if precision == "exact":
        origin = mu.detach().mean(0)
        z, mu = z - origin, mu - origin
    if by_pytorch():
        natural, constant = natural_parameters(mu, held_within(v, min_log_variance), -math.inf)
        log_prob = constant + product(_statistics(z), natural)
    else:
        log_prob = _GaussianLogProb.apply(z, mu, v, min_log_variance, compiled)  # type: ignore[no-untyped-call]
    return log_prob.to(result).view(features.shape[0], *means.shape[:-1])


def mixture_log_prob(component_log_prob: Tensor, log_weights: Tensor, temperature: Tensor | None = None) -> Tensor:
    """logsumexp_j (ln eta_ij + ln N_ij / tau) over the last dimension: [B, C, K], [C, K] -> [B, C].

    Without a temperature this is the log-density of a mixture. With tau > 1 it is a score, not a normalised
    density: components are flattened before they are summed, weights are not.
    """
    if by_pytorch() or (temperature is not None and temperature.requires_grad):
        tempered = component_log_prob if temperature is None else component_log_prob / temperature
        return torch.logsumexp(log_weights + tempered, -1)
    result: Tensor = _MixtureLogProb.apply(  # type: ignore[no-untyped-call]
        component_log_prob, log_weights, temperature
    )[0]
    return result


@fused
def mixture_mean(means: Tensor, weights: Tensor) -> Tensor:
    """sum_j eta_ij mu_ij: [C, K, M], [C, K] -> [C, M]."""
    return (weights[..., None] * means).sum(1)


@fused
def natural_parameters(means: Tensor, log_variances: Tensor, min_log_variance: float) -> tuple[Tensor, Tensor]:
    """(-1/(2b), mu/b) side by side [..., 2M] and c(mu, b) = -1/2 sum_m [ln 2 pi + ln b + mu^2 / b] [...]."""
    log_b = log_variances if min_log_variance == -math.inf else log_variances.clamp(min=min_log_variance)
    inverse = torch.exp(-log_b)
    linear = means * inverse
    constant = torch.addcmul(log_b, means, linear).sum(-1).add(means.shape[-1] * LN_2PI).mul(-0.5)
    return torch.cat([inverse.mul(-0.5), linear], -1), constant


class _MixtureLogProb(torch.autograd.Function):
    """logsumexp_j x_j = max_j x_j - ln max_j softmax_j(x), whose gradient is softmax(x).

    It is written out to save operations: at ten classes each of them costs as much as the arithmetic in it.
    The softmax is a second output, so that it can be differentiated: d x_j = s_j (h_j - sum_k s_k h_k) for h = d s.
    """

    @staticmethod
    def forward(ctx: Any, components: Tensor, log_weights: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        joint = log_weights + components if temperature is None else torch.addcdiv(log_weights, components, temperature)
        shares, largest = joint.softmax(-1), joint.amax(-1)
        ctx.save_for_backward(shares, temperature)
        # where all are impossible, shares are nan; ONNX has nan_to_num and no fmax
        log_sum = largest - shares.amax(-1).log().nan_to_num()
        return log_sum, shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, d_shares: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        shares, temperature = ctx.saved_tensors
        if grad is None and d_shares is None:
            return None, None, None
        slope = 0.0 if grad is None else grad[..., None]
        if d_shares is not None:  # only of a second derivative
            slope = slope + d_shares - (shares * d_shares).sum(-1, keepdim=True)
        d_joint = shares * slope
        d_weights = d_joint.sum(0) if ctx.needs_input_grad[1] else None
        return d_joint if temperature is None else d_joint / temperature, d_weights, None


class _GaussianLogProb(torch.autograd.Function):
    """[B, M], [N, M], [N, M] -> [B, N], keeping no tensor larger than its inputs and output for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, means: Tensor, log_variances: Tensor, min_log_variance: float, compiled: bool
    ) -> Tensor:
        natural, constant = natural_parameters(means, log_variances, min_log_variance)
        statistics = _statistics(features)
        ctx.save_for_backward(features, means, log_variances, statistics, natural)
        ctx.min_log_variance, ctx.compiled = min_log_variance, compiled
        with true_precision(features.device):
            return torch.addmm(constant, statistics, natural.T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        features, means, log_variances, statistics, natural = ctx.saved_tensors
        if records(ctx.compiled):
            statistics = _statistics(features)
            natural, _ = natural_parameters(means, log_variances, ctx.min_log_variance)
        d_features = d_means = d_log_variances = None
        with true_precision(grad.device):
            if ctx.needs_input_grad[0]:
                d_square, d_linear = multiply(grad, natural).chunk(2, 1)
                d_features = torch.addcmul(d_linear, features, d_square, value=2)
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
                d_natural, d_constant = multiply(grad.T, statistics), grad.sum(0)[:, None]
                d_means, d_log_variances = _parameter_gradients(
                    means, log_variances, natural, d_natural, d_constant, ctx.min_log_variance
                )
        return d_features, d_means, d_log_variances, None, None


def held_within(x: Tensor, low: float, high: float = math.inf) -> Tensor:
    """x clamped to an interval, with the gradient of projected descent: beyond the interval it leads back alone."""
    result: Tensor = _HeldWithin.apply(x, low, high)  # type: ignore[no-untyped-call]
    return result


class _HeldWithin(torch.autograd.Function):
    """Forward mode gives the derivative of a clamp."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: float, high: float) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        del output
        x, low, high = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.low, ctx.high = low, high

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        grad = torch.where(x < ctx.low, grad.clamp(max=0.0), grad)
        if ctx.high < math.inf:
            grad = torch.where(x > ctx.high, grad.clamp(min=0.0), grad)
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (x,) = ctx.saved_tensors
        return tangent.masked_fill((x < ctx.low) | (x > ctx.high), 0.0)


def _statistics(features: Tensor) -> Tensor:
    """(z^2, z) side by side: [B, M] -> [B, 2M]."""
    return torch.cat([features.square(), features], 1)


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
