"""Exact metrics of a ranking: sorted once, tied scores counted as one step, float64 throughout.

Scores are uncertainties: larger means more likely wrong or foreign. `positive` marks the samples that
should rank high (errors, foreign images). No score is squashed or binned, so any monotone transform of the
scores gives the same figure. With one kind of sample only, a figure that compares the two is nan.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def auroc(scores: Tensor, positive: Tensor) -> float:
    """The chance that a random positive scores above a random negative, ties counting one half."""
    counts, hits = _steps(scores, positive)
    positives, negatives = hits.sum(), (counts - hits).sum()
    if positives == 0 or negatives == 0:
        return math.nan
    misses = counts - hits
    below = misses.sum() - misses.cumsum(0)
    return float((hits * (below + misses / 2)).sum() / (positives * negatives))


def aupr(scores: Tensor, positive: Tensor) -> float:
    """Average precision: sum over distinct thresholds of (recall gained) x (precision there)."""
    counts, hits = _steps(scores, positive)
    if hits.sum() == 0 or hits.sum() == counts.sum():
        return math.nan
    precision = hits.cumsum(0) / counts.cumsum(0)
    return float((hits * precision).sum() / hits.sum())


def aurc(scores: Tensor, errors: Tensor) -> float:
    """Area under the risk-coverage curve: the mean over k of the error rate among the k most certain samples.

    Inside a group of tied scores the expected risk of a random order is used.
    """
    counts, hits = (part.flip(0) for part in _steps(scores, errors))
    accepted_before = counts.cumsum(0) - counts
    errors_before = hits.cumsum(0) - hits
    rate = hits / counts
    # For k = a + r, r = 1..n in a group: (e + r p) / (a + r) = p + (e - a p) / (a + r), a sum of harmonic numbers.
    harmonic = torch.special.digamma(accepted_before + counts + 1) - torch.special.digamma(accepted_before + 1)
    return float((rate * counts + (errors_before - accepted_before * rate) * harmonic).sum() / counts.sum())


def _steps(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """For each distinct score, largest first: how many samples have it and how many of those are positive."""
    if scores.ndim != 1 or scores.shape != positive.shape:
        raise ValueError(
            f"scores {list(scores.shape)} and marks {list(positive.shape)} must be two vectors of one length."
        )
    if len(scores) == 0:
        raise ValueError("there are no scores to rank.")
    if bool(scores.isnan().any()):
        raise ValueError(f"{int(scores.isnan().sum())} of {len(scores)} scores are NaN and cannot be ranked.")
    _, group, counts = torch.unique(-scores, sorted=True, return_inverse=True, return_counts=True)
    hits = torch.zeros(len(counts), dtype=torch.float64, device=scores.device)
    return counts.double(), hits.index_add_(0, group, positive.to(torch.float64))
