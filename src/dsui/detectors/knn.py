"""Distance to the k-th nearest training sample (Sun et al., ICML 2022), both features scaled to length 1.

u = |z / |z| - z_(k) / |z_(k)||^2 = 2 - 2 cos(z, z_(k)), z_(k) the training feature with the k-th largest cosine.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.checks import check_at_least
from dsui.detectors.detector import CHUNK_ELEMENTS, Detector
from dsui.outputs import Outputs


class KNN(Detector):
    """Keeps the training features, and no copy of them.

    If a class has fewer than `k` samples, neighbour k is of another class and the score means little.
    """

    learns: ClassVar = {"_bank": Tensor}

    def __init__(self, k: int = 50) -> None:
        check_at_least("k", k, 1)
        self.k = k

    def _fit(self, train: Outputs) -> None:
        if len(train) < self.k:
            raise ValueError(
                f"KNN needs neighbour {self.k} and was given {len(train)} training samples; give more, or a smaller k."
            )
        self._bank = train.features

    def _score(self, outputs: Outputs) -> Tensor:
        query = F.normalize(outputs.features)
        nearest = query.new_empty(len(query), 0)
        for part in self._bank.split(max(1, CHUNK_ELEMENTS // max(query.shape))):
            cosines = torch.cat([nearest, query @ F.normalize(part.double()).T], 1)
            nearest = cosines.topk(min(self.k, cosines.shape[1])).values
        return (2 - 2 * nearest[:, -1]).clamp(min=0)
