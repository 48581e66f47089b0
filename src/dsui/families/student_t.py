"""Student's t with a scale for each dimension: a Gaussian whose tails are heavier, the more so the smaller nu.

    t(z; mu, b, nu) = Gamma((nu + M)/2) / Gamma(nu/2) (nu pi)^(-M/2) prod b^(-1/2) (1 + delta / nu)^(-(nu + M)/2)
    delta           = sum_m (z_m - mu_m)^2 / b_m

delta is the quadratic form of the Gaussian: -2 ln N - M ln 2 pi - sum ln b. nu is learned for each component.
For nu to infinity it is the Gaussian.

Error: that of `dsui.density`, times at most (nu + M) / (2 nu). Measured against float64 with |z| and |mu| up to
sqrt(M), variances over 1e-2 to 1e2 and nu from 2.1 to 1e4, "fast" lost at most 1e-6 of max(1, |ln t|) for M from 2 to
2,048 where z is drawn from the whole sphere. Where z lies on a mean, delta vanishes in the rounding of its terms: 0.02
nats were lost at M = 512 and 0.4 at M = 2,048. "exact" has these digits.

EM is that of Liu and Rubin (Statistica Sinica 1995), with u = (nu + M) / (nu + delta) for the weight of a sample:

    mu = sum r u z / sum r u,    b = sum r u z^2 / sum r - mu^2 sum r u / sum r
    nu: 0 = ln(nu/2) - psi(nu/2) + 1 + sum r (ln u - u) / sum r + psi((nu' + M)/2) - ln((nu' + M)/2),  nu' the former
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsui.density import LN_2PI, Precision, gaussian_log_prob, held_within
from dsui.families.family import Components, Family, Statistics, kept_where_empty
from dsui.families.gaussian import TINY, with_variances

FEWEST, MOST = 2.1, 1e4
"""Degrees of freedom. From 2 on the variance is finite, which the regulariser needs; 1e4 is nearly a Gaussian."""
AT_START = 30.0
HALVINGS = 60


class StudentT(Family):
    """`log_freedom` [C, K] is ln nu."""

    def __init__(self, classes: int, components: int, features: int, floor: float) -> None:
        super().__init__(classes, components, features, floor)
        self.log_freedom = nn.Parameter(torch.full((classes, components), math.log(AT_START)))

    @property
    def freedom(self) -> Tensor:
        """[C, K] nu, between `FEWEST` and `MOST`, in float64."""
        return held_within(self.log_freedom.double(), math.log(FEWEST), math.log(MOST)).exp()

    def log_prob(
        self,
        z: Tensor,
        means: Tensor,
        log_variances: Tensor | None,
        precision: Precision = "exact",
        rows: slice = slice(None),
    ) -> Tensor:
        freedom = self.freedom[rows]
        distance, log_scale = self._distance(z, means, log_variances, precision)
        half = 0.5 * (freedom + self.features)
        constant = torch.lgamma(half) - torch.lgamma(0.5 * freedom) - 0.5 * self.features * (freedom * math.pi).log()
        value = (constant - 0.5 * log_scale).to(distance.dtype) - half.to(distance.dtype) * torch.log1p(
            distance / freedom.to(distance.dtype)
        )
        return value.to(distance.dtype)

    def _distance(
        self, z: Tensor, means: Tensor, log_variances: Tensor | None, precision: Precision
    ) -> tuple[Tensor, Tensor]:
        """delta [B, C, K], at least 0, and sum_m ln b [C, K] in float64."""
        assert log_variances is not None
        log_variances = held_within(log_variances, math.log(self.floor))
        gaussian = gaussian_log_prob(z, means, log_variances, precision)
        log_scale = log_variances.double().sum(-1)
        constant = (self.features * LN_2PI + log_scale).to(gaussian.dtype)
        return (-2 * gaussian - constant).clamp(min=0), log_scale

    def divergence(self, means: Tensor, log_variances: Tensor | None) -> Tensor:
        """KL[t || N(0, I)] = E ln t + M/2 ln 2 pi + 1/2 sum_m (nu / (nu - 2) b + a^2), in closed form:

        E ln t = ln Gamma((nu + M)/2) - ln Gamma(nu/2) - M/2 ln(nu pi) - 1/2 sum ln b
                 - (nu + M)/2 {psi((nu + M)/2) - psi(nu/2)}
        """
        assert log_variances is not None
        freedom, size = self.freedom, self.features
        half, rest = 0.5 * (freedom + size), 0.5 * freedom
        log_scale = log_variances.sum(-1, dtype=torch.float64)
        negentropy = torch.lgamma(half) - torch.lgamma(rest) - 0.5 * size * (freedom * math.pi).log() - 0.5 * log_scale
        negentropy = negentropy - half * (torch.digamma(half) - torch.digamma(rest))
        spread = freedom / (freedom - 2) * log_variances.exp().sum(-1) + means.square().sum(-1)
        return (negentropy + 0.5 * (size * LN_2PI + spread)).to(means.dtype)

    def statistics(
        self, z: Tensor, shares: Tensor, means: Tensor, log_variances: Tensor | None, row: int
    ) -> Statistics:
        assert log_variances is not None
        freedom = self.freedom[row]
        distance, _ = self._distance(z, means[None], log_variances[None], "exact")
        u = (freedom + self.features) / (freedom + distance[:, 0])
        weighted = shares * u
        return (
            shares.sum(0),
            weighted.sum(0),
            weighted.T @ z,
            weighted.T @ z.square(),
            (shares * (u.log() - u)).sum(0),
        )

    def maximise(self, statistics: Statistics, former: Components) -> Components:
        mass, weighted, first, second, surplus = statistics
        count = mass.clamp(min=TINY)
        means = first / weighted.clamp(min=TINY)[..., None]
        variances = (second - weighted[..., None] * means.square()) / count[..., None]
        freedom = self._likeliest_freedom(surplus / count)
        self.log_freedom.copy_(kept_where_empty(mass, freedom.log(), self.log_freedom))
        return with_variances(mass, means, variances.clamp(min=self.floor), former)

    def _likeliest_freedom(self, surplus: Tensor) -> Tensor:
        """The root of the condition above, which falls with nu, by halving an interval of ln nu: [C, K] -> [C, K]"""
        half = 0.5 * (self.freedom + self.features)
        constant = 1 + surplus + torch.digamma(half) - half.log()
        low, high = (torch.full_like(surplus, math.log(bound)) for bound in (FEWEST, MOST))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            x = 0.5 * middle.exp()
            above = x.log() - torch.digamma(x) + constant > 0
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return (0.5 * (low + high)).exp()

    def summary(self, log_variances: Tensor | None) -> dict[str, float]:
        return super().summary(log_variances) | {"mean_freedom": self.freedom.mean().item()}
