"""KL-matching (Hendrycks et al., ICML 2022): u = min_c KL(p || t_c), t_c the mean prediction of class c.

t_c is the mean over fitted samples that are *predicted* as c, so no labels are needed; a class that is
never predicted has the one-hot template. Probabilities of a template are at least the smallest normal float64.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dsui.detectors.detector import Detector, rows
from dsui.outputs import Outputs


class KLMatching(Detector):
    """Best fitted to held-out samples: predictions of training samples are more certain than those of new ones."""

    learns: ClassVar = {"_log_templates": Tensor}

    def _fit(self, train: Outputs) -> None:
        classes = train.logits.shape[1]
        total = torch.zeros(classes, classes, dtype=torch.float64, device=train.logits.device)
        for part in rows(train):
            total.index_add_(0, part.predictions, part.probabilities)
        counts = torch.bincount(train.predictions, minlength=classes)[:, None]
        templates = torch.where(counts > 0, total / counts, torch.eye(classes, device=total.device))
        self._log_templates = templates.clamp(min=torch.finfo(torch.float64).tiny).log()

    def _score(self, outputs: Outputs) -> Tensor:
        log_p = outputs.logits.log_softmax(1)
        p = log_p.exp()
        return (p * log_p).sum(1) - (p @ self._log_templates.T).amax(1)
