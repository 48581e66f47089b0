"""Mahalanobis distance to the nearest class (Lee et al., NeurIPS 2018), of the last features and without input noise.

u = min_c (z - m_c)^T S^-1 (z - m_c), S the covariance all classes share (see `dsui.detectors.gaussian`).
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dsui.detectors.detector import Detector
from dsui.detectors.gaussian import SHRINKAGE, Gaussians, check_shrinkage, fit_shared
from dsui.outputs import Outputs


class Mahalanobis(Detector):
    """`shrinkage` adds that share of the mean variance to every variance."""

    needs_labels = True
    learns: ClassVar = {"_classes": Gaussians}

    def __init__(self, shrinkage: float = SHRINKAGE) -> None:
        check_shrinkage(shrinkage)
        self.shrinkage = shrinkage

    def _fit(self, train: Outputs) -> None:
        assert train.labels is not None
        self._classes = fit_shared(train.features, train.labels, train.logits.shape[1], self.shrinkage)

    def _score(self, outputs: Outputs) -> Tensor:
        return self._classes.squared_distances(outputs.features).amin(1)
