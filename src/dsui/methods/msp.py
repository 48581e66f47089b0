"""The baseline: a softmax classifier trained with cross-entropy (Hendrycks and Gimpel, ICLR 2017).

L = -ln p_t,  p = softmax(W f(x) + b); its uncertainties are 1 - max p and the entropy of p. With `sphere` the features
are projected as DS-UI's are, and predicted inside the sphere as there (`dsui.methods.dsui`), which shows what both do
by themselves.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from dsui.evaluation.outputs import Outputs, share_of_radius
from dsui.methods.method import Method
from dsui.methods.network import FeatureNetwork, OutputLayer
from dsui.projection import SphereProjection
from dsui.training.recipe import Recipe


class MaxSoftmax(Method):
    """The network with a plain linear layer, on the sphere of `dsui.projection` if asked for."""

    def __init__(self, backbone: str, channels: int, num_classes: int, recipe: Recipe, *, sphere: bool = False) -> None:
        super().__init__()
        self.network = FeatureNetwork(backbone, channels, recipe, ending="linear" if sphere else "activated")
        self.sphere = SphereProjection(self.network.out_features) if sphere else None
        self.output = OutputLayer(self.network.out_features, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        features, _ = self._features(images)
        logits: Tensor = self.output(features)
        return logits

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        value = F.cross_entropy(output.float(), labels)
        self.terms = {"cross_entropy": value.detach()}
        return value

    def logits(self, output: Tensor) -> Tensor:
        return output

    def predict(self, images: Tensor) -> Outputs:
        features, norm = self._features(images)
        if norm is not None:
            features = features * share_of_radius(norm, features.shape[1])[:, None]
        return Outputs(features, self.output(features), norm=norm, weight=self.output.weight, bias=self.output.bias)

    def _features(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """[B, M], and on the sphere [B] their length before it."""
        features = self.network(images)
        if self.sphere is None:
            return features, None
        return self.sphere.project(features.float(), batch_statistics=self.training, update=self.training)
