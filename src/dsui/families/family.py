"""What the components of a class's mixture are: the part of the MoGMM-FC layer that another distribution replaces.

    mixture of class i: sum_j eta_ij p(z; mu_ij, ...)

Every family keeps the means mu [C, K, M], which the classifier is tied to, W_i = sum_j eta_ij mu_ij. The layer holds
them, the mixing weights and, for families that scale each dimension, the log-variances [C, K, M]. What else describes
components is a parameter of the family, [C, K, ...] where each has its own. No family makes a tensor [B, C, K, M].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from dsui.density import Precision


class Components(NamedTuple):
    """All mixtures: weights [C, K], means [C, K, M], and log-variances [C, K, M] where the family has them."""

    weights: Tensor
    means: Tensor
    log_variances: Tensor | None


Statistics = tuple[Tensor, ...]

NOTHING = 1e-6
"""A component that explains less of a sample than this explains nothing: sums over it would be rounding."""


class Family(nn.Module, ABC):
    """`floor` bounds densities: no variance is below it, nor what takes its place."""

    has_variances: ClassVar[bool] = True
    """Whether components scale each dimension by the layer's log-variances."""
    on_sphere: ClassVar[bool] = False
    """Whether it is a distribution on the sphere of radius sqrt(M) alone."""

    def __init__(self, classes: int, components: int, features: int, floor: float) -> None:
        super().__init__()
        self.classes, self.components, self.features, self.floor = classes, components, features, floor

    @abstractmethod
    def log_prob(
        self,
        z: Tensor,
        means: Tensor,
        log_variances: Tensor | None,
        precision: Precision = "exact",
        rows: slice = slice(None),
    ) -> Tensor:
        """[B, c, K] ln p(z; mu_ij, ...) of features [B, M]. `rows` are the c classes that `means` and `log_variances`
        [c, K, M] are of."""

    def forward(self, z: Tensor, means: Tensor, log_variances: Tensor | None, precision: Precision) -> Tensor:
        """`log_prob` of all classes."""
        return self.log_prob(z, means, log_variances, precision)

    @abstractmethod
    def divergence(self, means: Tensor, log_variances: Tensor | None) -> Tensor:
        """[C, K] the Kullback-Leibler divergence of each component from the regulariser's prior: a standard normal,
        on the sphere the uniform distribution."""

    @abstractmethod
    def statistics(
        self, z: Tensor, shares: Tensor, means: Tensor, log_variances: Tensor | None, row: int
    ) -> Statistics:
        """What `maximise` needs of the samples [n, M] of the class `row`, whose components [K, M] explain `shares`
        [n, K] of each. They are summed over the parts of a class."""

    @abstractmethod
    def maximise(self, statistics: Statistics, former: Components) -> Components:
        """The M step: set the family's own parameters, and return the components. Each of the `statistics` is stacked
        over classes. A component that explains nothing stays as it is, with next to no weight; so does a whole class
        without samples, with its weights."""

    def summary(self, log_variances: Tensor | None) -> dict[str, float]:
        """What a training log says of the components."""
        return {} if log_variances is None else {"mean_log_variance": log_variances.mean().item()}


def kept_where_empty(mass: Tensor, found: Tensor, former: Tensor) -> Tensor:
    """`found` [C, K, ...] but for components whose `mass` [C, K] is nothing, which stay as they were."""
    empty = (mass < NOTHING).view(*mass.shape, *[1] * (found.ndim - mass.ndim))
    return torch.where(empty, former.to(found.dtype), found)


def weights_of(mass: Tensor, former: Tensor) -> Tensor:
    """[C, K] from how much each component explains; a class without samples keeps its `former` weights."""
    total = mass.sum(1, keepdim=True)
    return torch.where(total > 0, mass / total.clamp(min=torch.finfo(mass.dtype).tiny), former.to(mass.dtype))


def working_type(z: Tensor, means: Tensor, precision: Precision) -> torch.dtype:
    """The type that densities are computed in."""
    if precision == "exact":
        return torch.float64
    return torch.promote_types(torch.promote_types(z.dtype, means.dtype), torch.float32)
