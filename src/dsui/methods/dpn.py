"""draft"""

from __future__ import annotations

from torch import Tensor

from dsui.evaluation.outputs import Outputs
from dsui.methods.dirichlet import (
    bounded_concentrations,
    differential_entropy,
    kl_divergence,
    label_concentrations,
    mutual_information,
)
from dsui.methods.msp import MaxSoftmax
from dsui.training.recipe import Recipe
import torch

class PriorNetwork(MaxSoftmax):
    learns_from_outliers = True

    def __init__(self, backbone: str, channels: int, num_classes: int, recipe: Recipe, *, concentration: float = 1e2, outlier_weight: float = 1.0, scale: float = 1.0, lo: float = 1e-2, hi: float=1e5) -> None:
        super().__init__(backbone, channels, num_classes, recipe)
        self.concentration, self.outlier_weight = concentration, outlier_weight
        self.scale, self.lo, self.hi = scale, lo, hi

    def divergence(self, alpha: Tensor, target: Tensor) -> Tensor:
        return kl_divergence(target, alpha)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        alpha = bounded_concentrations(output, self.lo, self.hi)
        own, foreign = alpha[: len(labels)], alpha[len(labels) :]
        target = label_concentrations(labels, alpha.shape[1], self.concentration)
        value = self.divergence(own, target).mean()/ self.concentration*self.scale
        self.terms = {"kl": value.detach()}
        if len(foreign):
            out = self.divergence(foreign, torch.ones_like(foreign)).mean()/ self.concentration*self.scale
            self.terms["outlier_kl"] = out.detach()
            value = value + self.outlier_weight * out
        return value.float()

    def predict(self, images: Tensor) -> Outputs:
        plain = super().predict(images)
        own = {
            "mutual_information": mutual_information(plain.logits),
            "differential_entropy": differential_entropy(plain.logits),
        }
        return Outputs(plain.features, plain.logits, weight=plain.weight, bias=plain.bias, own=own)
