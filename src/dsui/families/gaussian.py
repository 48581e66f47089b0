"""The Gaussian of the paper: N(z; mu, diag b), a variance for each dimension.

`dsui.density` has the formula, its error and its derivatives; `dsui.em` fits all classes at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsui.density import Precision, gaussian_log_prob
from dsui.divergence import divergence_from_standard_normal
from dsui.families.family import Components, Family, Statistics, kept_where_empty, weights_of

TINY = torch.finfo(torch.float64).tiny


class Gaussian(Family):
    """It has no parameters of its own."""

    def log_prob(
        self,
        z: Tensor,
        means: Tensor,
        log_variances: Tensor | None,
        precision: Precision = "exact",
        rows: slice = slice(None),
    ) -> Tensor:
        del rows
        assert log_variances is not None
        return gaussian_log_prob(z, means, log_variances, precision, math.log(self.floor))

    def divergence(self, means: Tensor, log_variances: Tensor | None) -> Tensor:
        """KL[N(a, diag b) || N(0, I)] = 1/2 sum_m (b + a^2 - ln b - 1)."""
        assert log_variances is not None
        return divergence_from_standard_normal(means, log_variances)

    def statistics(
        self, z: Tensor, shares: Tensor, means: Tensor, log_variances: Tensor | None, row: int
    ) -> Statistics:
        del means, log_variances, row
        return shares.sum(0), shares.T @ z, shares.T @ z.square()

    def maximise(self, statistics: Statistics, former: Components) -> Components:
        """mu = sum r z / sum r,  b = sum r z^2 / sum r - mu^2"""
        mass, first, second = statistics
        count = mass.clamp(min=TINY)[..., None]
        means = first / count
        variances = (second / count - means.square()).clamp(min=self.floor)
        return with_variances(mass, means, variances, former)


def with_variances(mass: Tensor, means: Tensor, variances: Tensor, former: Components) -> Components:
    """Components after an M step, of how much each explains [C, K]; those that explain nothing stay as they were."""
    assert former.log_variances is not None
    return Components(
        weights_of(mass, former.weights),
        kept_where_empty(mass, means, former.means),
        kept_where_empty(mass, variances.log(), former.log_variances),
    )
