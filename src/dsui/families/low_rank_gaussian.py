"""Gaussians with a diagonal and r directions: N(z; mu, D + U U^T), D = diag b, U [M, r] for each component.

By Woodbury's identity, with A = D^-1 U, I + U^T A = G G^T (Cholesky) and y = G^-1 A^T (z - mu):

    ln N(z; mu, D + U U^T) = ln N(z; mu, D) + 1/2 |y|^2 - sum_k ln G_kk

y is one more matrix product, of [B, M] with [M, C K r], so there is a tensor [B, C, K, r] and none [B, C, K, M].

Error: the two terms can cancel where U is large beside D. Measured against float64 with |z| and |mu| up to sqrt(M),
variances over 1e-1 to 1e1 and columns of U of length up to sqrt(M), "fast" lost at most 2e-6 of max(1, |ln N|) for
M from 2 to 2,048.

EM is that of a mixture of factor analysers (Ghahramani and Hinton, 1996): z = mu + U x + noise, x ~ N(0, I), with
E x = beta (z - mu), beta = U^T (D + U U^T)^-1 = (I + U^T A)^-1 A^T and E x x^T = I - beta U + E x E x^T.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsui.density import Precision, gaussian_log_prob, held_within
from dsui.families.family import NOTHING, Components, Family, Statistics, kept_where_empty, working_type
from dsui.families.gaussian import TINY, with_variances
from dsui.matrix_product import product

DIRECTIONS_AT_START = 0.1
"""Deviation of the random U, small beside the variances' 1."""


class LowRankGaussian(Family):
    """`directions` [C, K, M, r] is U."""

    def __init__(self, classes: int, components: int, features: int, floor: float, rank: int = 8) -> None:
        if not 1 <= rank < features:
            raise ValueError(f"rank must be at least 1 and below the {features} features, got {rank}.")
        super().__init__(classes, components, features, floor)
        self.rank = rank
        start = DIRECTIONS_AT_START * torch.randn(classes, components, features, rank)
        self.directions = nn.Parameter(start)

    def _parts(self, log_variances: Tensor, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """A G^-T [c, K, M, r] and sum_k ln G_kk [c, K] of variances exp(`log_variances`), in float64, which no setting
        for speed touches."""
        directions = self.directions[rows].double()
        scaled = directions / log_variances.double().exp()[..., None]
        inner = directions.mT @ scaled + torch.eye(self.rank, dtype=scaled.dtype, device=scaled.device)
        factor = torch.linalg.cholesky_ex(inner).L
        turned = torch.linalg.solve_triangular(factor, scaled.mT, upper=False).mT
        return turned, factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def _floored(self, log_variances: Tensor) -> Tensor:
        return held_within(log_variances, math.log(self.floor))

    def log_prob(
        self,
        z: Tensor,
        means: Tensor,
        log_variances: Tensor | None,
        precision: Precision = "exact",
        rows: slice = slice(None),
    ) -> Tensor:
        assert log_variances is not None
        working, log_variances = working_type(z, means, precision), self._floored(log_variances)
        turned, log_volume = (part.to(working) for part in self._parts(log_variances, rows))
        diagonal = gaussian_log_prob(z, means, log_variances, precision)
        shape = (*means.shape[:-1], self.rank)
        origin = means.detach().to(working).reshape(-1, self.features).mean(0)
        seen = product(z.to(working) - origin, turned.mT.reshape(-1, self.features)).view(z.shape[0], *shape)
        centre = (turned * (means.to(working) - origin)[..., None]).sum(-2)
        return diagonal + 0.5 * (seen - centre).square().sum(-1) - log_volume

    def divergence(self, means: Tensor, log_variances: Tensor | None) -> Tensor:
        """KL = 1/2 { sum b + |U|^2 + |a|^2 - sum ln b - 2 sum ln G_kk - M }."""
        assert log_variances is not None
        _, log_volume = self._parts(log_variances)
        plain = log_variances.double().expm1() - log_variances.double() + means.double().square()
        value = 0.5 * (plain.sum(-1) + self.directions.double().square().sum((-2, -1))) - log_volume
        return value.to(means.dtype)

    def statistics(
        self, z: Tensor, shares: Tensor, means: Tensor, log_variances: Tensor | None, row: int
    ) -> Statistics:
        """With x~ = (x, 1): sum r, sum r z^2, sum r z E x~^T and sum r E x~ x~^T."""
        assert log_variances is not None
        directions = self.directions[row].double()
        scaled = directions / self._floored(log_variances).exp()[..., None]
        eye = torch.eye(self.rank, dtype=torch.float64, device=z.device)
        beta = torch.linalg.solve(eye + directions.mT @ scaled, scaled.mT)  # [K, r, M]
        hidden = torch.einsum("krm,nkm->nkr", beta, z[:, None] - means)
        mass = shares.sum(0)
        with_one = torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1)
        crossed = torch.einsum("nk,nm,nkr->kmr", shares, z, with_one)
        squared = torch.einsum("nk,nkr,nks->krs", shares, with_one, with_one)
        squared[:, :-1, :-1] += mass[:, None, None] * (eye - beta @ directions)
        return mass, shares.T @ z.square(), crossed, squared

    def maximise(self, statistics: Statistics, former: Components) -> Components:
        """(U, mu) = (sum r z E x~^T)(sum r E x~ x~^T)^-1,  b = {sum r z^2 - diag((U, mu) sum r E x~ z^T)} / sum r"""
        mass, second, crossed, squared = statistics
        count = mass.clamp(min=TINY)
        eye = torch.eye(self.rank + 1, dtype=torch.float64, device=mass.device)
        joint = torch.linalg.solve(torch.where(mass[..., None, None] < NOTHING, eye, squared), crossed.mT).mT
        variances = (second - (joint * crossed).sum(-1)) / count[..., None]
        self.directions.copy_(kept_where_empty(mass, joint[..., :-1], self.directions))
        return with_variances(mass, joint[..., -1], variances.clamp(min=self.floor), former)
