"""A linear layer whose weights are Gaussians, and their divergence from a prior (Blundell et al., ICML 2015).

    q(w) = N(mu, sigma^2),  sigma = ln(1 + e^rho),  H[q] = sum { ln sigma + ln(2 pi e) / 2 }

    "gaussian"   P(w) = N(0, s^2)                              s = 0.1
                 KL(q | P) = sum { (sigma^2 + mu^2) / 2 s^2 - 1/2 - ln(sigma / s) }
    "mixture"    P(w) = 1/2 N(0, s_1^2) + 1/2 N(0, s_2^2)      s_1 = 1, s_2 = e^-6
                 KL(q | P) = -H[q] - E ln P(w), the mean taken at one draw w = mu + sigma e

Blundell et al. estimate ln q(w) at the draw as well. Its e has no gradient, so the gradients are the same; with H[q]
the value is less noisy. The Gaussian prior needs no w, and activations are drawn instead (Kingma, Salimans and Welling,
NeurIPS 2015):

    y = x mu + sqrt(x^2 sigma^2) e

This is as if each row of the batch had its own w: the distribution of a row is the same, the gradient less noisy.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Prior = Literal["gaussian", "mixture"]
PRIOR_STD = 0.1
WIDE_STD, NARROW_STD = 1.0, math.exp(-6)
START = -5.0
"""rho at the start: a sigma of 0.0067."""
LOWEST = -20.0
"""rho is clamped here: sigma is 2e-9, and its square is far from underflow."""


class VariationalLinear(nn.Linear):
    """[B, in] -> [B, out]: random in training mode, the mean weights in evaluation mode.

    The means are the parameters of `start` and keep its names, so that they load from a plain network. The layer runs
    in float32, also where autocast runs the layers before it in bfloat16: that would round away deviations that are
    small beside their means.
    """

    def __init__(self, start: nn.Linear, prior: Prior) -> None:
        super().__init__(start.in_features, start.out_features, device="meta")  # draws no random number
        self.prior = prior
        self.weight, self.bias = start.weight, start.bias
        self.weight_rho = nn.Parameter(torch.full_like(start.weight, START))
        self.bias_rho = nn.Parameter(torch.full_like(start.bias, START))
        self._drawn: tuple[Tensor, ...] | None = None

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return self._linear(x.float())

    def _linear(self, x: Tensor) -> Tensor:
        if not self.training:
            return F.linear(x, self.weight, self.bias)
        if self.prior == "mixture":
            self._drawn = tuple(mean + std * torch.randn_like(std) for mean, std in self.posteriors())
            return F.linear(x, *self._drawn)
        (weight, weight_std), (bias, bias_std) = self.posteriors()
        mean = F.linear(x, weight, bias)
        variance = F.linear(x.square(), weight_std.square(), bias_std.square())
        return mean + variance.sqrt() * torch.randn_like(variance)

    def posteriors(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Mean and deviation of the weights, then of the biases."""
        return (self.weight, deviation(self.weight_rho)), (self.bias, deviation(self.bias_rho))

    def divergence(self) -> Tensor:
        """KL(q | P); from the mixture it is an estimate at the weights that the last call in training mode drew. These
        are dropped afterwards, so that the layer can be copied."""
        if self.prior == "gaussian":
            return torch.stack([gaussian_divergence(*posterior) for posterior in self.posteriors()]).sum()
        if self._drawn is None:
            raise ValueError("the divergence from a mixture is estimated at drawn weights; call the layer first.")
        drawn, self._drawn = self._drawn, None
        parts = zip(drawn, self.posteriors(), strict=True)
        return torch.stack([mixture_divergence(values, std) for values, (_, std) in parts]).sum()


def deviation(rho: Tensor) -> Tensor:
    return F.softplus(rho.clamp(min=LOWEST))


def gaussian_divergence(mean: Tensor, std: Tensor) -> Tensor:
    """KL of all N(mean, std^2) from N(0, 0.1^2), summed."""
    ratio = std / PRIOR_STD
    return ((ratio.square() + (mean / PRIOR_STD).square() - 1) / 2 - ratio.log()).sum()


def mixture_divergence(drawn: Tensor, std: Tensor) -> Tensor:
    """An unbiased estimate of KL(q | mixture), summed; `drawn` is one draw from Gaussians of deviation `std`."""
    entropy = std.log() + (1 + math.log(2 * math.pi)) / 2
    return -(entropy + mixture_log_prob(drawn)).sum()


def mixture_log_prob(values: Tensor) -> Tensor:
    wide, narrow = (
        -(values / std).square() / 2 - math.log(std) - math.log(2 * math.pi) / 2 for std in (WIDE_STD, NARROW_STD)
    )
    return torch.logaddexp(wide, narrow) - math.log(2)
