"""Dirichlet prior network, forward divergence (Malinin and Gales, NeurIPS 2018).

The network's logits are the logarithms of a Dirichlet's concentrations, alpha = exp(y), so that softmax(y) is its mean:

    L = E_own KL[Dir(1 + b e_t) || Dir(alpha)] + w E_foreign KL[Dir(1) || Dir(alpha)]

t is the label; the second term exists where a run has outliers. The targets are those of the authors' maintained code,
which has b = 100 and divides L by b. Here b is 10, and L is not divided. With 100 a network must be almost certain
before L falls. Neither L nor its gradient grows in proportion to b, so that the division makes them too small beside a
recipe's weight decay (docs/methods/dpn.md).

The divergence covers modes: where labels disagree, the best single Dirichlet has small alpha, spread over the corners
of these labels. `dsui.methods.rkl` reverses the divergence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.checks import check_positive
from dsui.methods.dirichlet import (
    bounded_concentrations,
    differential_entropy,
    kl_divergence,
    label_concentrations,
    mutual_information,
)
from dsui.methods.msp import MaxSoftmax
from dsui.outputs import Outputs
from dsui.recipe import Recipe

SMALLEST = 1e-2
"""In the loss, alpha is at least this and at most `largest` times the largest target. The best alpha for an image lies
well within these bounds, however its labels are distributed. With respect to y, the gradient of one divergence grows as
1 / alpha, that of the other as alpha. Beyond a bound it stays what it is there, so that it does not vanish and one
badly wrong image does not outweigh the others."""


class PriorNetwork(MaxSoftmax):
    """The network of the baseline; `concentration` is b, `outlier_weight` is w.

    Own uncertainties: "mutual_information" and "differential_entropy"; see `dsui.methods.dirichlet`.
    """

    learns_from_outliers = True
    takes_copies: bool = True
    largest = 10.0

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        concentration: float = 10.0,
        outlier_weight: float = 1.0,
    ) -> None:
        check_positive("concentration", concentration)
        if not 0 <= outlier_weight < float("inf"):
            raise ValueError(f"outlier_weight must be at least 0 and finite, got {outlier_weight}.")
        super().__init__(backbone, channels, num_classes, recipe)
        self.concentration, self.outlier_weight = concentration, outlier_weight

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        alpha = bounded_concentrations(output, SMALLEST, self.largest * (1 + self.concentration))
        own, foreign = alpha[: len(labels)], alpha[len(labels) :]
        target = label_concentrations(labels, alpha.shape[1], self.concentration)
        value = self._divergence(own, target).mean()
        self.terms = {"divergence": value.detach().float()}
        if len(foreign) > 0:
            flat = self._divergence(foreign, torch.ones_like(foreign)).mean()
            self.terms["outlier_divergence"] = flat.detach().float()
            value = value + self.outlier_weight * flat
        return value.float()

    def predict(self, images: Tensor) -> Outputs:
        plain = super().predict(images)
        own = {
            "mutual_information": mutual_information(plain.logits),
            "differential_entropy": differential_entropy(plain.logits),
        }
        return Outputs(plain.features, plain.logits, weight=plain.weight, bias=plain.bias, own=own)

    def _divergence(self, alpha: Tensor, target: Tensor) -> Tensor:
        """[B] between concentrations [B, C] and their targets, scaled to suit a recipe's weight decay."""
        return kl_divergence(target, alpha)
