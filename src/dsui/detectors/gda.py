"""Gaussian discriminant analysis of the features, the density of DDU (Mukhoti et al., CVPR 2023).

u = -ln sum_c (n_c / N) N(z; m_c, S_c), a full covariance S_c for each class where each has more samples than there are
features. With fewer, S_c has no inverse and its shrinkage would dominate, so all classes share one covariance; this
also keeps the covariances of a thousand classes smaller than the training features.
DDU's code weights all classes equally and divides by n_c - 1; this uses the class frequencies and n_c.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dsui.detectors.detector import Detector
from dsui.detectors.gaussian import SHRINKAGE, Gaussians, check_shrinkage, fit_separate, fit_shared
from dsui.outputs import Outputs


class GDA(Detector):
    """`shrinkage` adds that share of the mean variance to every variance."""

    needs_labels = True
    learns: ClassVar = {"_classes": Gaussians}

    def __init__(self, shrinkage: float = SHRINKAGE) -> None:
        check_shrinkage(shrinkage)
        self.shrinkage = shrinkage

    def _fit(self, train: Outputs) -> None:
        assert train.labels is not None
        classes = train.logits.shape[1]
        enough = int(torch.bincount(train.labels, minlength=classes).min()) > train.features.shape[1]
        fit = fit_separate if enough else fit_shared
        self._classes = fit(train.features, train.labels, classes, self.shrinkage)

    def _score(self, outputs: Outputs) -> Tensor:
        return -self._classes.log_joint(outputs.features).logsumexp(1)
