"""Classes as blocks of active units behind a ReLU, a linear classifier that sums each block, and foreign samples.

M = 48 features: five blocks of 8, one per class, and 8 that the classifier does not read. In-domain, the units of the
own block are about 3, all others near 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.evaluation.metrics import auroc
from dsui.outputs import Outputs

CLASSES, BLOCK = 5, 8
WIDTH = (CLASSES + 1) * BLOCK
WEIGHT = torch.zeros(CLASSES, WIDTH, dtype=torch.float64)
for label in range(CLASSES):
    WEIGHT[label, label * BLOCK : (label + 1) * BLOCK] = 0.5
BIAS = torch.linspace(-0.2, 0.2, CLASSES, dtype=torch.float64)


def classified(features: Tensor, labels: Tensor | None = None) -> Outputs:
    return Outputs(features, features @ WEIGHT.T + BIAS, labels, weight=WEIGHT, bias=BIAS)


def in_domain(per_class: int = 200, seed: int = 0) -> Outputs:
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    centres = torch.zeros(CLASSES, WIDTH, dtype=torch.float64)
    for label in range(CLASSES):
        centres[label, label * BLOCK : (label + 1) * BLOCK] = 3
    return classified((centres[labels] + 0.3 * _normal(len(labels), seed)).relu(), labels)


def faint(count: int = 500, seed: int = 1) -> Outputs:
    """All units a little active, so that no class stands out and none is strong."""
    return classified((0.7 + 0.3 * _normal(count, seed)).relu())


def dim(count: int = 500, seed: int = 6) -> Outputs:
    """Like one of a class, but a fifth as active."""
    return classified(in_domain(-(-count // CLASSES), seed).features[:count] / 5)


def unseen(count: int = 500, seed: int = 2) -> Outputs:
    """Each looks to the classifier like one of a class, but units that it does not read are active."""
    features = in_domain(-(-count // CLASSES), seed).features[:count].clone()
    features[:, -BLOCK:] += 2 + 0.3 * _normal(count, seed + 1)[:, :BLOCK]
    return classified(features)


def spiked(count: int = 500, seed: int = 4) -> Outputs:
    """Faint, but for one very active unit, which the logits take for a class."""
    features = faint(count, seed).features.clone()
    features[torch.arange(count), torch.arange(count) % (CLASSES * BLOCK)] = 30
    return classified(features)


def separation(known: Tensor, foreign: Tensor) -> float:
    """AUROC of the scores."""
    return auroc(torch.cat([known, foreign]), torch.arange(len(known) + len(foreign)) >= len(known))


def _normal(count: int, seed: int) -> Tensor:
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
