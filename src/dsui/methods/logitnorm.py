"""LogitNorm: cross-entropy that cannot be lowered by longer logits (Wei et al., ICML 2022).

    L = -ln softmax(f / (t |f|))_label,  f = W h(x) + b

The plain network predicts: p = softmax(f), and the published score is its Max.P. Training fixes only the direction of
f, so that its length can be small for images unlike the training set.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dsui.checks import check_positive
from dsui.methods.msp import MaxSoftmax
from dsui.outputs import Outputs
from dsui.recipe import Recipe
from dsui.scores import max_probability

SMALLEST_NORM = 1e-7
"""Added to |f|, so that logits of zero have a gradient; as in the authors' code."""


class LogitNorm(MaxSoftmax):
    """The network of the baseline; `temperature` is t, by default the one published for CIFAR-10.

    Own uncertainties: "logit_norm" is -|f|; "normalized" is Max.P. of the probabilities in the loss,
    softmax(f / (t |f|)).
    """

    takes_copies: bool = True
    takes_doubles: bool = True
    adjustable: bool = True

    def __init__(
        self, backbone: str, channels: int, num_classes: int, recipe: Recipe, *, temperature: float = 0.04
    ) -> None:
        check_positive("temperature", temperature)
        super().__init__(backbone, channels, num_classes, recipe)
        self.temperature = temperature

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        return super().loss(normalize(output.float(), self.temperature), labels)

    def predict(self, images: Tensor) -> Outputs:
        plain = super().predict(images)
        return replace(plain, own=self._own(plain.logits, plain.logits.shape[1]))

    def first_classes(self, outputs: Outputs, count: int, share: float) -> Outputs:
        """The logits are normalised by the length of all of them, as in training."""
        return replace(super().first_classes(outputs, count, share), own=self._own(outputs.logits, count))

    def _own(self, logits: Tensor, count: int) -> dict[str, Tensor]:
        """Its own uncertainties, of the first `count` classes."""
        logits = logits.double()
        return {
            "logit_norm": -torch.linalg.vector_norm(logits[:, :count], dim=1),
            "normalized": max_probability(normalize(logits, self.temperature)[:, :count]),
        }


def normalize(logits: Tensor, temperature: float) -> Tensor:
    """[B, C] f / (t |f|)."""
    length: Tensor = torch.linalg.vector_norm(logits, dim=1, keepdim=True)
    return logits / (temperature * (length + SMALLEST_NORM))
