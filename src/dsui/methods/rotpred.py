"""RotPred: beside the classes the network predicts by how many quarter turns an image was turned (Hendrycks et al.,
NeurIPS 2019).

    L = CE(y(x), t) + 1/4 sum_r CE(v(turn_r x), r),    r = 0, 1, 2, 3

y are the logits of the C classes and v those of the four turns, both linear in the same features. The three turned
copies of an image stand in its batch (`dsui.training.copies`).

Its own uncertainty "rotpred" takes four passes, with the confidence of OpenOOD (Zhang et al., 2023), negated here:

    u(x) = 1/4 sum_r CE(v(turn_r x), r) - KL(uniform || softmax y(x))

All other scores, the prediction included, are of the upright pass alone.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.methods.doubles import TURNS
from dsui.methods.msp import MaxSoftmax
from dsui.methods.network import OutputLayer
from dsui.outputs import Outputs
from dsui.recipe import Recipe


class RotPred(MaxSoftmax):
    """The network of the baseline with a second linear layer, for the turns."""

    needs_images = True
    takes_copies: bool = True
    adjustable: bool = True
    passes: int = TURNS
    copies: int = TURNS - 1

    def __init__(self, backbone: str, channels: int, num_classes: int, recipe: Recipe) -> None:
        super().__init__(backbone, channels, num_classes, recipe)
        self.num_classes = num_classes
        self.turn_output = OutputLayer(self.network.out_features, TURNS)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C + 4] the logits of the classes, and behind them those of the turns."""
        features: Tensor = self.network(images)
        return torch.cat([self.output(features), self.turn_output(features)], 1)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """`labels` are t + r C. A turned image has no class to learn: its part of the loss is that of the turns.

        A batch of one turn has the weight of one image's turn, so upright images and three copies add up to L.
        """
        turn, upright = labels // self.num_classes, labels < self.num_classes
        classes = F.cross_entropy(
            self.adjusted(self.logits(output).float()), labels % self.num_classes, reduction="none"
        )
        turns = F.cross_entropy(output[:, self.num_classes :].float(), turn)
        of_classes = torch.where(upright, classes, 0.0).mean()
        self.terms = {"cross_entropy": of_classes.detach(), "turns": turns.detach()}
        return of_classes + turns / TURNS

    def logits(self, output: Tensor) -> Tensor:
        return output[:, : self.num_classes]

    def seen_turns(self, images: Tensor) -> Tensor:
        turns: Tensor = self.turn_output(self.network(images))
        return turns.argmax(1)

    def predict(self, images: Tensor) -> Outputs:
        upright = super().predict(images)
        turns = [self.turn_output(upright.features)]
        turns += [self.turn_output(self.network(images.rot90(turn, (2, 3)))) for turn in range(1, TURNS)]
        surprise = torch.stack([-each.double().log_softmax(1)[:, turn] for turn, each in enumerate(turns)]).mean(0)
        log_p = upright.logits.double().log_softmax(1)
        confidence = -log_p.mean(1) - math.log(self.num_classes)
        return replace(upright, own={"rotpred": surprise - confidence})
