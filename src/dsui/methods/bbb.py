"""Bayes by Backprop: a classifier whose last layers have a distribution over weights (Blundell et al., ICML 2015).

    L = -ln p_label(x; w) + beta KL(q | P) / N,  w ~ q,  N training samples
    p = 1/T sum_t softmax(y_t),  y_t the logits under the t-th draw from q
    I = H[p] - 1/T sum_t H[p_t]

The linear layers of the neck and the output layer are those of `dsui.methods.variational`; backbone and batch norms are
the baseline's, and the backbone runs once for all T. beta = 1 is the variational bound; a smaller one trusts the data
more. I, "mutual_information", is large where the draws disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import get_args

import torch
from torch import Tensor, nn

from dsui.checks import check_between, check_choice, check_positive
from dsui.methods.mc_dropout import predict_by_sampling
from dsui.methods.method import MOST_SAMPLES
from dsui.methods.msp import MaxSoftmax
from dsui.methods.variational import Prior, VariationalLinear, deviation
from dsui.outputs import Outputs
from dsui.recipe import Recipe


class BayesByBackprop(MaxSoftmax):
    """`prior` is P, `kl_weight` beta and `samples` T."""

    draws: bool = True
    adjustable: bool = True

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        prior: Prior = "gaussian",
        kl_weight: float = 0.1,
        samples: int = 50,
    ) -> None:
        check_choice("prior", prior, get_args(Prior))
        check_positive("kl_weight", kl_weight)
        check_between("samples", samples, 1, MOST_SAMPLES)
        super().__init__(backbone, channels, num_classes, recipe)
        self.kl_weight, self.passes = kl_weight, samples
        self.training_samples = 0
        neck = self.network.neck
        for parent in (self,) if neck is None else (self, neck.layers):
            for name, layer in list(parent.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(parent, name, VariationalLinear(layer, prior))

    @property
    def variational(self) -> list[VariationalLinear]:
        return [layer for layer in self.modules() if isinstance(layer, VariationalLinear)]

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        if self.training_samples == 0:
            raise ValueError("bbb divides the KL by the number of training samples; call set_class_counts first.")
        fit = super().loss(output, labels)
        divergence = torch.stack([layer.divergence() for layer in self.variational]).sum() / self.training_samples
        self.terms["divergence"] = divergence.detach()
        return fit + self.kl_weight * divergence

    def predict(self, images: Tensor) -> Outputs:
        return predict_by_sampling(self, images, self.variational)

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        return chain(*(layer.parameters() for layer in self.variational))

    def set_class_counts(self, counts: Tensor) -> None:
        self.training_samples = int(counts.sum())

    def log_row(self) -> dict[str, object]:
        return {"weight_std": [deviation(layer.weight_rho).mean().item() for layer in self.variational]}
