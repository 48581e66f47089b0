"""Gaussians of the features, one for each class, with separate covariances or a shared one, by maximum likelihood.

    m_c = mean of class c,   S = sum_n (z_n - m_{y_n})(z_n - m_{y_n})^T / N, over class c alone for its own
    d_c^2 = (z - m_c)^T (S + s tr(S)/M I)^-1 (z - m_c) = |L^-1 (z - m_c)|^2,   L the Cholesky factor

The shrinkage s makes S invertible where features are constant or outnumber the samples. A pseudo-inverse would ignore
the part of a feature outside the span of the training features; here that part, the most foreign one, counts strongly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsui.density import LN_2PI
from dsui.em import ClassSamples

SHRINKAGE = 1e-6


class Gaussians:
    """means [C, M]; factors [C, M, M], or [1, M, M] when all classes share one; counts [C]. All float64."""

    means: Tensor
    factors: Tensor
    counts: Tensor

    def __init__(self, means: Tensor, factors: Tensor, counts: Tensor) -> None:
        self.means, self.factors, self.counts = means, factors, counts
        self._origin = means.mean(0)
        self._whitened = self._solve(0, means - self._origin) if self.shared else None

    @property
    def shared(self) -> bool:
        return len(self.factors) == 1

    def squared_distances(self, z: Tensor) -> Tensor:
        """[N, C] of float64 features [N, M]; no [N, C, M] tensor exists."""
        if self._whitened is None:
            return torch.stack(
                [self._solve(label, z - mean).square().sum(1) for label, mean in enumerate(self.means)], 1
            )
        white = self._solve(0, z - self._origin)
        lengths = white.square().sum(1, keepdim=True) + self._whitened.square().sum(1)
        return lengths.addmm_(white, self._whitened.T, alpha=-2).clamp_(min=0)

    def log_joint(self, z: Tensor) -> Tensor:
        """[N, C] ln(n_c / N) + ln N(z; m_c, S_c)."""
        log_determinants = 2 * self.factors.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = (self.counts.double() / self.counts.sum()).log() - 0.5 * (log_determinants + z.shape[1] * LN_2PI)
        return constant - 0.5 * self.squared_distances(z)

    def inverted(self) -> Gaussians:
        """The same by products with inverse factors, for a graph that knows no triangular systems."""
        return InvertedGaussians(self.means, self.factors, self.counts)

    def _solve(self, place: int, rows: Tensor) -> Tensor:
        """L^-1 v for every row v of [N, M], L the factor at `place`."""
        solved: Tensor = torch.linalg.solve_triangular(self.factors[place], rows.T, upper=False)
        return solved.T


class InvertedGaussians(Gaussians):
    """Gaussians that hold L^-1 [C or 1, M, M] as well. Rounding is that of float64, for a singular L much of it."""

    def __init__(self, means: Tensor, factors: Tensor, counts: Tensor) -> None:
        identity = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
        self._inverses: Tensor = torch.linalg.solve_triangular(factors, identity, upper=False)
        super().__init__(means, factors, counts)

    def _solve(self, place: int, rows: Tensor) -> Tensor:
        solved: Tensor = rows @ self._inverses[place].T
        return solved


def fit_shared(z: Tensor, y: Tensor, classes: int, shrinkage: float) -> Gaussians:
    """One covariance, of the features around their class's mean. z [N, M], y [N]"""
    samples = ClassSamples(z, y, classes)
    scatter = torch.zeros(samples.size, samples.size, dtype=torch.float64, device=z.device)
    for _, chunk, weight in samples.chunks():
        rows = chunk[weight > 0]
        scatter.addmm_(rows.T, rows)
    factor = _factor(scatter / len(z), shrinkage)
    return Gaussians(samples.centre, factor[None], samples.counts)


def fit_separate(z: Tensor, y: Tensor, classes: int, shrinkage: float) -> Gaussians:
    """A covariance for each class. If every class has more samples than features, they need no more memory than z."""
    samples = ClassSamples(z, y, classes)
    factors = torch.empty(classes, samples.size, samples.size, dtype=torch.float64, device=z.device)
    for label, rows in enumerate(samples.order.split(samples.counts.tolist())):
        centred = z[rows].double() - samples.centre[label]
        factors[label] = _factor(centred.T @ centred / len(rows), shrinkage)
    return Gaussians(samples.centre, factors, samples.counts)


def check_shrinkage(shrinkage: float) -> None:
    if not 0 <= shrinkage < math.inf:
        raise ValueError(f"shrinkage must be finite and not negative, got {shrinkage}.")


def _factor(covariance: Tensor, shrinkage: float) -> Tensor:
    """L with L L^T = S + s tr(S)/M I."""
    covariance.diagonal().add_(shrinkage * covariance.diagonal().mean())
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        raise ValueError(
            f"the covariance of the features is singular with shrinkage {shrinkage:g}; "
            "fit to more samples that differ, or shrink more."
        )
    return factor
