"""How long the features of each class are: the part of a feature that the sphere drops, as a density.

    ln p(|h| | i) = -ln(|h| s_i sqrt(2 pi)) - (ln |h| - m_i)^2 / (2 s_i^2)          a log-normal for class i

m_i and s_i are mean and deviation of ln |h| over the training images of the class. With it ln p(z) + ln p(|h|) is the
log-density of direction and length together. (|h| is the length after the layer's batch norm, before the sphere.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsui.density import LN_2PI

SMALLEST_DEVIATION = 1e-3
SHORTEST = 1e-6
"""Shorter features count as this long."""
FEWEST = 10
"""A class with fewer samples takes mean and deviation of all."""


class LogNormalLength(nn.Module):
    """`mean` and `deviation` [C] of ln |h|."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(classes))
        self.register_buffer("deviation", torch.ones(classes))

    @torch.no_grad()
    def fit(self, norms: Tensor, labels: Tensor) -> None:
        """From |h| [N] and labels [N] of training images."""
        logs = norms.double().clamp(min=SHORTEST).log()
        for row in range(len(self.mean)):
            own = logs[labels == row]
            own = own if len(own) >= FEWEST else logs
            self.mean[row] = own.mean()
            self.deviation[row] = own.std().clamp(min=SMALLEST_DEVIATION)

    def log_prob(self, norms: Tensor) -> Tensor:
        """[B, C] of |h| [B], in float64."""
        logs = norms.double().clamp(min=SHORTEST).log()[:, None]
        mean, deviation = self.mean.double(), self.deviation.double()
        return -logs - deviation.log() - 0.5 * LN_2PI - 0.5 * ((logs - mean) / deviation).square()
