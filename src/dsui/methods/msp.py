"""The baseline: a softmax classifier trained with cross-entropy (Hendrycks and Gimpel, ICLR 2017).

L = -ln p_t,  p = softmax(W f(x) + b); its uncertainties are 1 - max p and the entropy of p.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from dsui.evaluation.outputs import Outputs
from dsui.methods.method import Method
from dsui.methods.network import FeatureNetwork
from dsui.training.recipe import Recipe


class MaxSoftmax(Method):
    """The network with a plain linear layer."""

    def __init__(self, backbone: str, channels: int, num_classes: int, recipe: Recipe) -> None:
        super().__init__()
        self.network = FeatureNetwork(backbone, channels, recipe, ending="activated")
        self.output = nn.Linear(self.network.out_features, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.network(images))
        return logits

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        value = F.cross_entropy(output.float(), labels)
        self.terms = {"cross_entropy": value.detach()}
        return value

    def logits(self, output: Tensor) -> Tensor:
        return output

    def predict(self, images: Tensor) -> Outputs:
        features = self.network(images)
        return Outputs(features, self.output(features), weight=self.output.weight, bias=self.output.bias)
