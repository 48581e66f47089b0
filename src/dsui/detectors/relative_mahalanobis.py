"""Relative Mahalanobis distance (Ren et al., 2021): the distance to a class less that to all training samples.

u = min_c d_c^2 - d_0^2, d_0 the Mahalanobis distance to one Gaussian of the samples of all classes.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dsui.detectors.gaussian import Gaussians, fit_shared
from dsui.detectors.mahalanobis import Mahalanobis
from dsui.outputs import Outputs


class RelativeMahalanobis(Mahalanobis):
    """`shrinkage` adds that share of the mean variance to every variance."""

    learns: ClassVar = {"_classes": Gaussians, "_all": Gaussians}

    def _fit(self, train: Outputs) -> None:
        super()._fit(train)
        assert train.labels is not None
        self._all = fit_shared(train.features, torch.zeros_like(train.labels), 1, self.shrinkage)

    def _score(self, outputs: Outputs) -> Tensor:
        return super()._score(outputs) - self._all.squared_distances(outputs.features)[:, 0]
