"""The paper's three-layer fully connected net between backbone and output; the head is its third layer.

    BN - Dropout - Linear(in, 2048) - BN - LeakyReLU(0.2) - Dropout - Linear(2048, 2048) [ - BN [ - LeakyReLU(0.2)]]

How it ends depends on the head that follows:

    "activated"    ... Linear - BN - LeakyReLU     a plain linear layer, and every head without a projection
    "normalized"   ... Linear - BN                 the released MoGMM layer, which applies the LeakyReLU itself
    "linear"       ... Linear                      a head with project=True, which brings its own batch norm

Xie et al. say "three-layer FC, 2048 hidden units, LeakyReLU"; the batch norms are those of their public code,
where dropout is 0.7. Linear layers start at PyTorch's default, there as here.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from dsui.backbones.backbone import SLOPE
from dsui.checks import check_choice

Ending = Literal["linear", "normalized", "activated"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)


class Neck(nn.Module):
    """[B, in_features] -> [B, width] features."""

    def __init__(self, in_features: int, width: int = 2048, dropout: float = 0.2, ending: Ending = "activated") -> None:
        super().__init__()
        check_choice("ending", ending, ENDINGS)
        self.out_features = width
        after_last = [nn.BatchNorm1d(width), nn.LeakyReLU(SLOPE)][: ENDINGS.index(ending)]
        self.layers = nn.Sequential(
            nn.BatchNorm1d(in_features),
            nn.Dropout(dropout),
            nn.Linear(in_features, width),
            nn.BatchNorm1d(width),
            nn.LeakyReLU(SLOPE),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            *after_last,
        )

    def forward(self, features: Tensor) -> Tensor:
        y: Tensor = self.layers(features)
        return y
