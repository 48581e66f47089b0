"""Dirichlet prior network, reverse divergence (Malinin and Gales, NeurIPS 2019).

    L = (E_own KL[Dir(alpha) || Dir(1 + b e_t)] + w E_foreign KL[Dir(alpha) || Dir(1)]) / b

This is the loss of `dsui.methods.dpn` with the divergence reversed. It grows in proportion to b and is divided by b, as
in the authors' maintained code. Averaged over the labels of one image it is, up to a constant, the divergence from a
single Dirichlet whose concentrations are the averaged targets: where labels disagree, alpha stays large and only its
mean becomes uncertain. It is also

    KL[Dir(alpha) || Dir(1 + b e_t)] = b (psi(alpha_0) - psi(alpha_t)) + KL[Dir(alpha) || Dir(1)] + constant

which is an expected log-loss with a pull towards the flat Dirichlet.
"""

from __future__ import annotations

from torch import Tensor

from dsui.methods.dirichlet import kl_divergence
from dsui.methods.dpn import PriorNetwork
from dsui.recipe import Recipe


class ReversePriorNetwork(PriorNetwork):
    """Options and own uncertainties are those of `PriorNetwork`; b is 100, as published.

    The gradient of this divergence does not grow with alpha, and during training alpha exceeds ten times the target for
    a while: a bound there harmed training (docs/methods/rkl.md).
    """

    takes_copies: bool = True
    largest = 1e3

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        concentration: float = 1e2,
        outlier_weight: float = 1.0,
    ) -> None:
        super().__init__(
            backbone, channels, num_classes, recipe, concentration=concentration, outlier_weight=outlier_weight
        )

    def _divergence(self, alpha: Tensor, target: Tensor) -> Tensor:
        return kl_divergence(alpha, target) / self.concentration
