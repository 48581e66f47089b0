"""Gaussians that share one full covariance: N(z; mu, S), S^-1 = L L^T with L lower triangular and of positive diagonal.

    ln N = -M/2 ln 2 pi + sum_m ln L_mm - 1/2 |L^T z|^2 + <L^T z, L^T mu> - 1/2 |L^T mu|^2

L^T whitens features and means, [B + C K, M] by a triangular [M, M] (`dsui.families.triangular`), and one product of
[B, M] with [M, C K] compares them. L_mm is at most floor^(-1/2), which bounds the density by
(2 pi floor)^(-M/2).

Error: against float64, with |z| and |mu| up to sqrt(M) and a condition of S of 1e3, "fast" lost at most 3e-6 of
max(1, |ln N|) for M from 2 to 2,048.

EM: mu = sum r z / sum r, and S is the mean of r (z - mu)(z - mu)^T over all samples, classes and components.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsui.density import LN_2PI, Precision, held_within
from dsui.families.family import Components, Family, Statistics, kept_where_empty, weights_of, working_type
from dsui.families.gaussian import TINY
from dsui.families.triangular import inverse_square_sum, triangular_product
from dsui.matrix_product import product


class TiedGaussian(Family):
    """`whitening` [M, M] holds L below its diagonal, and ln L_mm on it; what is above counts nothing."""

    has_variances = False

    def __init__(self, classes: int, components: int, features: int, floor: float) -> None:
        super().__init__(classes, components, features, floor)
        self.whitening = nn.Parameter(torch.zeros(features, features))

    def _factor(self, working: torch.dtype) -> tuple[Tensor, Tensor]:
        """L [M, M] and ln L_mm [M]."""
        whitening = self.whitening.to(working)
        log_diagonal = held_within(whitening.diagonal(), -math.inf, -0.5 * math.log(self.floor))
        return whitening.tril(-1) + torch.diag(log_diagonal.exp()), log_diagonal

    def log_prob(
        self,
        z: Tensor,
        means: Tensor,
        log_variances: Tensor | None,
        precision: Precision = "exact",
        rows: slice = slice(None),
    ) -> Tensor:
        del log_variances, rows
        working = working_type(z, means, precision)
        factor, log_diagonal = self._factor(working)
        z, flat = z.to(working), means.to(working).reshape(-1, self.features)
        origin = flat.detach().mean(0)  # near the features, which saves digits
        whitened, centres = triangular_product(z - origin, factor), triangular_product(flat - origin, factor)
        constant = log_diagonal.sum() - 0.5 * self.features * LN_2PI
        squares = whitened.square().sum(1, keepdim=True) + centres.square().sum(1)
        value: Tensor = constant + product(whitened, centres) - 0.5 * squares
        shaped: Tensor = value.view(z.shape[0], *means.shape[:-1])
        return shaped

    def divergence(self, means: Tensor, log_variances: Tensor | None) -> Tensor:
        """KL[N(a, S) || N(0, I)] = 1/2 (tr S + |a|^2 - ln det S - M), tr S = |L^-1|^2 and ln det S = -2 sum ln L_mm."""
        del log_variances
        factor, log_diagonal = self._factor(self.whitening.dtype)
        trace = inverse_square_sum(factor)
        value: Tensor = 0.5 * (trace - self.features) + log_diagonal.sum() + 0.5 * means.square().sum(-1)
        return value

    def statistics(
        self, z: Tensor, shares: Tensor, means: Tensor, log_variances: Tensor | None, row: int
    ) -> Statistics:
        del means, log_variances, row
        weighted = z * shares.sum(1, keepdim=True)
        return shares.sum(0), shares.T @ z, weighted.T @ z

    def maximise(self, statistics: Statistics, former: Components) -> Components:
        mass, first, scatter = statistics
        means = first / mass.clamp(min=TINY)[..., None]
        between = torch.einsum("ckm,ckn->mn", first, means)
        covariance = (scatter.sum(0) - between) / mass.sum()
        self.whitening.copy_(self._whitening_of(covariance))
        return Components(weights_of(mass, former.weights), kept_where_empty(mass, means, former.means), None)

    def _whitening_of(self, covariance: Tensor) -> Tensor:
        """Where samples leave directions without any variance, these get the floor."""
        values, vectors = torch.linalg.eigh(covariance)
        precision = (vectors / values.clamp(min=self.floor)) @ vectors.T
        factor: Tensor = torch.linalg.cholesky(0.5 * (precision + precision.T))
        return factor.tril(-1) + torch.diag(factor.diagonal().log())

    def summary(self, log_variances: Tensor | None) -> dict[str, float]:
        del log_variances
        return {"mean_log_precision": 2 * self.whitening.diagonal().mean().item()}
