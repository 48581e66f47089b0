"""One Gaussian mixture for each class, fitted to the features after training: DS-UI's density without its training.

u = -ln sum_c (n_c / N) sum_k eta_ck N(z; mu_ck, diag b_ck), by expectation-maximisation (see `dsui.em`).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dsui import em
from dsui.checks import check_at_least, check_positive
from dsui.density import gaussian_log_prob, mixture_log_prob
from dsui.detectors.detector import CHUNK_ELEMENTS, Detector
from dsui.outputs import Outputs


class EMMixture(Detector):
    """No variance is below `floor` times the mean variance of a feature within its class."""

    needs_labels = True
    learns: ClassVar = {"_means": Tensor, "_log_variances": Tensor, "_log_weights": Tensor}

    def __init__(self, components: int = 8, floor: float = 1e-3) -> None:
        check_at_least("components", components, 1)
        check_positive("floor", floor)
        self.components, self.floor = components, floor

    def _fit(self, train: Outputs) -> None:
        assert train.labels is not None
        samples = em.ClassSamples(train.features, train.labels, train.logits.shape[1])
        squares = sum(float((chunk.square() * weight[..., None]).sum()) for _, chunk, weight in samples.chunks())
        if squares == 0:
            raise ValueError("the features do not vary within any class; fit to more samples that differ.")
        floor = self.floor * squares / train.features.numel()
        mixtures = em.fit(samples, self.components, floor, torch.Generator().manual_seed(0))
        self._means, self._log_variances = mixtures.means, mixtures.variances.log()
        self._log_weights = mixtures.weights.log() + (samples.counts.double() / len(train)).log()[:, None]

    def formula(self, outputs: Outputs) -> Tensor:
        """Without the parts, whose number depends on that of the samples."""
        return -self._log_density(outputs.features.double())

    def _score(self, outputs: Outputs) -> Tensor:
        parts = outputs.features.split(max(1, CHUNK_ELEMENTS // self._log_weights.numel()))
        return torch.cat([-self._log_density(part) for part in parts])

    def _log_density(self, features: Tensor) -> Tensor:
        components = gaussian_log_prob(features, self._means, self._log_variances, "exact")
        return mixture_log_prob(components, self._log_weights).logsumexp(1)
