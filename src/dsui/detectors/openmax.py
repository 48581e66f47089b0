"""OpenMax (Bendale and Boult, CVPR 2016): logits that lie unusually far from their class are discounted.

    d_c = |y - m_c|, m_c the mean logits of training samples correctly classified as c
    w_c = Weibull_c(d_c - s_c + 1), fitted to the `tail` largest distances of class c, s_c the least of them
    v = y - min_c y_c;   the i-th largest v_c gives r_c v_c to "unknown", r_c = w_c (alpha + 1 - i) / alpha, i <= alpha
    u = ln P(unknown) / P(known) under the softmax of the discounted values and that of "unknown"

Negative logits would grow when discounted, so they are shifted. u orders samples as P(unknown) does, without ties. The
variant "neal" (Neal et al., ECCV 2018) discounts every class by w_c: u = -ln sum_c exp(y_c (1 - w_c)).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from dsui.checks import check_at_least, check_choice
from dsui.detectors.detector import Detector, class_means, examples, rows
from dsui.outputs import Outputs
from dsui.weibull import UnusualDistances, discounted, fit_unusual_distances


class OpenMax(Detector):
    """Discounts at most `alpha` classes of each sample, fitted to at most `tail` samples of each class.

    A tail should be a small part of its class; otherwise ordinary samples count as unusual.
    """

    needs_labels = True
    learns: ClassVar = {"_tails": UnusualDistances}

    def __init__(self, tail: int = 20, alpha: int = 10, variant: Literal["openmax", "neal"] = "openmax") -> None:
        check_at_least("tail", tail, 2)
        check_at_least("alpha", alpha, 1)
        check_choice("variant", variant, ("openmax", "neal"))
        self.tail, self.alpha, self.variant = tail, alpha, variant

    def _fit(self, train: Outputs) -> None:
        assert train.labels is not None
        means = class_means(train, train.logits)
        distances = torch.cat(
            [torch.linalg.vector_norm(part.logits - means[part.labels], dim=1) for part in rows(train)]
        )
        chosen = examples(train)
        self._tails = fit_unusual_distances(distances[chosen], train.labels[chosen], means, self.tail)

    def _score(self, outputs: Outputs) -> Tensor:
        y = outputs.logits
        unusual = self._tails.probability(y)
        if self.variant == "neal":
            return -(y * (1 - unusual)).logsumexp(1)
        left, removed = discounted(y - y.amin(1, keepdim=True), unusual, min(self.alpha, y.shape[1]))
        return removed - left.logsumexp(1)
