"""The baseline: a softmax classifier trained with cross-entropy (Hendrycks and Gimpel, ICLR 2017).

    L = -ln p_t,  p = softmax(W f(x) + b)

Its uncertainties are 1 - max p and the entropy of p. Two options show what parts of DS-UI do alone. With `sphere` the
features are projected as in DS-UI, and predictions are made inside the sphere as there (`dsui.methods.dsui`). With
`margin` the label's logit must lead by that amount, as `bounded` demands of DS-UI's mixtures with ln rho
(`dsui.objectives`; Wang et al., 2018, who demand it of logits on a sphere).
"""

from __future__ import annotations

import math

from torch import Tensor

from dsui.methods.method import Method
from dsui.methods.network import FeatureNetwork, OutputLayer
from dsui.objectives import bounded
from dsui.outputs import Outputs, share_of_radius
from dsui.projection import SphereProjection
from dsui.recipe import Recipe


class MaxSoftmax(Method):
    """The network with a plain linear layer; with `sphere`, its features lie on the sphere of `dsui.projection`."""

    takes_copies: bool = True
    takes_doubles: bool = True
    adjustable: bool = True

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        sphere: bool = False,
        margin: float = 0.0,
    ) -> None:
        if not 0 <= margin < math.inf:
            raise ValueError(f"margin must be at least 0 and finite, got {margin}.")
        super().__init__()
        self.margin = margin
        self.network = FeatureNetwork(backbone, channels, recipe, ending="linear" if sphere else "activated")
        self.sphere = SphereProjection(self.network.out_features) if sphere else None
        self.output = OutputLayer(self.network.out_features, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        features, _ = self._features(images)
        logits: Tensor = self.output(features)
        return logits

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        value = bounded(self.adjusted(output.float()), labels, math.exp(self.margin))
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
        """Features [B, M], and with `sphere` [B] their length before the projection."""
        features = self.network(images)
        if self.sphere is None:
            return features, None
        return self.sphere.project(features.float(), batch_statistics=self.training, update=self.training)
