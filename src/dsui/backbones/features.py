"""No network: the features that another one gave are used as they are, standardised.

    z = (x - mean) / sqrt(variance + 1e-5)      over the batch in training, over training batches afterwards

Features of different networks differ in scale by orders of magnitude, and a linear layer learns at the speed of the
largest ones. A head that projects standardises again, which changes nothing.
"""

from __future__ import annotations

from torch import Tensor, nn

from dsui.backbones.backbone import Backbone


class StandardizedFeatures(Backbone):
    """Features [B, M, 1, 1] or [B, M] -> [B, M]."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.out_features = channels
        self.norm = nn.BatchNorm1d(channels, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        standardized: Tensor = self.norm(images.flatten(1))
        return standardized
