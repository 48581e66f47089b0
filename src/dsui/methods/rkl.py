"""draft"""

from __future__ import annotations

from torch import Tensor

from dsui.methods.dirichlet import kl_divergence
from dsui.methods.dpn import PriorNetwork


class ReversePriorNetwork(PriorNetwork):
    def divergence(self, alpha: Tensor, target: Tensor) -> Tensor:
        return kl_divergence(alpha, target)
