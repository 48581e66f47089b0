"""The training samples that stand for their class: those the model classifies correctly."""

from __future__ import annotations

import torch
from torch import Tensor

from dsui.detectors.detector import CHUNK_ELEMENTS
from dsui.evaluation.outputs import Outputs


def examples(train: Outputs) -> Tensor:
    """[N] marks them; of a class without any, all its samples."""
    assert train.labels is not None
    correct = train.predictions == train.labels
    found = torch.bincount(train.labels[correct], minlength=train.logits.shape[1])
    return correct | (found == 0)[train.labels]


def class_means(train: Outputs, values: Tensor) -> Tensor:
    """[C, D] in float64: the mean over each class's examples of values [N, D], features or logits."""
    assert train.labels is not None
    classes = train.logits.shape[1]
    total = torch.zeros(classes, values.shape[1], dtype=torch.float64, device=values.device)
    chosen = examples(train)
    step = max(1, CHUNK_ELEMENTS // values.shape[1])
    for part, label, used in zip(values.split(step), train.labels.split(step), chosen.split(step), strict=True):
        total.index_add_(0, label[used], part[used].double())
    return total / torch.bincount(train.labels[chosen], minlength=classes)[:, None]
