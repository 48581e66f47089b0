"""Relative Mahalanobis distance (Ren et al., 2021): the distance to a class beside that to all training samples.

u = min_c d_c^2 - d_0^2, d_0 the Mahalanobis distance to one Gaussian for all samples, whatever their class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.detectors.detector import Detector
from dsui.detectors.gaussian import SHRINKAGE, check_shrinkage, fit_shared
from dsui.evaluation.outputs import Outputs


class RelativeMahalanobis(Detector):
    """`shrinkage` adds that share of the mean variance to every variance."""

    needs_labels = True

    def __init__(self, shrinkage: float = SHRINKAGE) -> None:
        check_shrinkage(shrinkage)
        self.shrinkage = shrinkage

    def _fit(self, train: Outputs) -> None:
        assert train.labels is not None
        self._classes = fit_shared(train.features, train.labels, train.logits.shape[1], self.shrinkage)
        self._all = fit_shared(train.features, torch.zeros_like(train.labels), 1, self.shrinkage)

    def _score(self, outputs: Outputs) -> Tensor:
        nearest = self._classes.squared_distances(outputs.features).amin(1)
        return nearest - self._all.squared_distances(outputs.features)[:, 0]
