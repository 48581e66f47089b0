"""The layer of the authors' public code, rebuilt for study.

It differs from the paper in this:

* Both streams see LeakyReLU(0.2) of the features.
* The classifier adds up the means with the raw mixing parameters pi (1 at the start), y_i = sum_j pi_ij mu_ij z, while
  the mixture uses softmax(pi). With one component pi is a constant.
* The means start from U(-1/sqrt(KC), 1/sqrt(KC)).
* Nothing is projected, scaled or tempered, and no variance has a floor.
* Every forward pass, in training or not, adds 1e-8 to each omega.

Its loss is `DualSupervisedLoss("released")`. The neck with dropout 0.7 and the first epoch without density
terms belong to the training recipe. Counting omega during that epoch is `set_class_prior` here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.density import mixture_mean
from dsui.head import MoGMMHead
from dsui.head_output import HeadOutput

SLOPE = 0.2
DRIFT = 1e-8


class ReleasedHead(MoGMMHead):
    """`MoGMMHead` as released; `components` is 1 by default there, 8 in the paper's tables."""

    def __init__(self, in_features: int, num_classes: int, components: int = 1) -> None:
        no_floor = torch.finfo(torch.float32).tiny
        super().__init__(
            in_features,
            num_classes,
            components,
            project=False,
            logit_scale=None,
            temperature=1.0,
            variance_floor=no_floor,
        )
        bound = (components * num_classes) ** -0.5
        nn.init.uniform_(self.means, -bound, bound)
        ones = torch.ones(num_classes, components)
        del self.mixing_logits
        if components == 1:
            self.register_buffer("mixing_logits", ones)
        else:
            self.mixing_logits = nn.Parameter(ones)

    @property
    def class_weights(self) -> Tensor:
        """[C, M] sum_j pi_ij mu_ij, pi not normalised."""
        return mixture_mean(self.means, self.mixing_logits)

    def forward(self, x: Tensor) -> HeadOutput:
        with torch.no_grad():
            self.class_prior.add_(DRIFT)
        return super().forward(x)

    def _project(self, x: Tensor, update: bool = False) -> tuple[Tensor, Tensor]:
        z, norm = super()._project(x, update)
        return F.leaky_relu(z, SLOPE), norm
