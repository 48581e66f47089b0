"""Simplified Hopfield energy (Zhang et al., ICLR 2023): u = -<z, t_c>, c the predicted class.

t_c is the mean feature of the training samples that are correctly classified as c (see `dsui.detectors.detector`).
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dsui.detectors.detector import Detector, class_means
from dsui.outputs import Outputs


class SHE(Detector):
    """Meant for features from a ReLU, where a large inner product means that the same units are active."""

    needs_labels = True
    learns: ClassVar = {"_templates": Tensor}

    def _fit(self, train: Outputs) -> None:
        self._templates = class_means(train, train.features)

    def _score(self, outputs: Outputs) -> Tensor:
        return -(outputs.features * self._templates[outputs.predictions]).sum(1)
