"""Exact metrics of a ranking: one sort, tied scores as one step, float64 throughout.

Scores are uncertainties: larger means more likely wrong or foreign. `positive` marks the samples that should rank high
(errors, foreign images); the others are in-domain. No score is squashed or binned, so any increasing transform of the
scores gives the same metrics. With samples of one kind only, a metric that compares the two is nan.
The metrics of selective prediction are in `dsui.evaluation.selective` and can be imported from here too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsui.evaluation.selective import (
    Ranking,
    augrc,
    aurc,
    e_aurc,
    rank,
    risk_coverage_curve,
    selective_metrics,
    selective_risk,
)

__all__ = [
    "augrc",
    "aupr",
    "aupr_in",
    "aupr_trapezoid",
    "aurc",
    "auroc",
    "e_aurc",
    "false_alarms95",
    "fpr95",
    "precision_recall_curve",
    "ranking_metrics",
    "risk_coverage_curve",
    "roc_curve",
    "selective_metrics",
    "selective_risk",
    "ties",
]


def roc_curve(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """False and true positive rate as the threshold falls through the G distinct scores, from (0, 0). [G + 1] each"""
    return _roc(rank(scores, positive))


def precision_recall_curve(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Precision and recall as the threshold falls through the G distinct scores, from (1, 0). [G + 1] each"""
    return _precision_recall(rank(scores, positive))


def auroc(scores: Tensor, positive: Tensor) -> float:
    """The chance that a random positive scores above a random negative, ties counting one half."""
    return ranking_metrics(scores, positive)["auroc"]


def aupr(scores: Tensor, positive: Tensor) -> float:
    """Average precision: sum over distinct thresholds of (recall gained) x (precision there)."""
    return ranking_metrics(scores, positive)["aupr"]


def aupr_in(scores: Tensor, positive: Tensor) -> float:
    """Average precision of finding the in-domain samples by low scores."""
    return ranking_metrics(scores, positive)["aupr_in"]


def aupr_trapezoid(scores: Tensor, positive: Tensor) -> float:
    """Area under straight lines between the points of the precision-recall curve, to compare with OpenOOD.

    No threshold reaches the points on such lines, and they favour tied scores; `aupr` does not use them.
    """
    return ranking_metrics(scores, positive)["aupr_trapezoid"]


def fpr95(scores: Tensor, positive: Tensor) -> float:
    """The share of foreign samples accepted when 95 % of in-domain samples are kept.

    Every score up to the threshold is accepted. The threshold is the least score that keeps at least 95 %.
    """
    return ranking_metrics(scores, positive)["fpr95"]


def false_alarms95(scores: Tensor, positive: Tensor) -> float:
    """The share of in-domain samples rejected when 95 % of foreign samples are caught (OpenOOD's FPR95).

    Every score from the threshold on is rejected. The threshold is the largest score that catches at least 95 %.
    """
    return ranking_metrics(scores, positive)["false_alarms95"]


def ranking_metrics(scores: Tensor, positive: Tensor) -> dict[str, float]:
    """Every metric that compares positives with negatives, and `ties`, from one sort."""
    descending = rank(scores, positive)
    turned = descending.reversed()
    ascending = Ranking(turned.samples, turned.negatives)
    precision, _ = _precision_recall(descending)
    # areas over counts, which are whole numbers: a perfect ranking gives exactly 1
    positives, negatives = descending.positives[-1], descending.negatives[-1]
    compared = {
        "auroc": float(torch.trapezoid(descending.positives, descending.negatives) / (positives * negatives)),
        "aupr": _average_precision(descending),
        "aupr_in": _average_precision(ascending),
        "aupr_trapezoid": float(torch.trapezoid(precision, descending.positives) / positives),
        "fpr95": _false_positives_at_95(ascending),
        "false_alarms95": _false_positives_at_95(descending),
    }
    if not bool(positives * negatives > 0):
        compared = dict.fromkeys(compared, math.nan)
    return {**compared, "ties": _ties(descending)}


def ties(scores: Tensor) -> int:
    """The number of samples that share their score with another one."""
    return _ties(rank(scores, torch.zeros_like(scores, dtype=torch.bool)))


def _ties(ranking: Ranking) -> int:
    sizes = ranking.samples.diff()
    return int(sizes[sizes > 1].sum())


def _roc(ranking: Ranking) -> tuple[Tensor, Tensor]:
    return ranking.negatives / ranking.negatives[-1], ranking.positives / ranking.positives[-1]


def _precision_recall(ranking: Ranking) -> tuple[Tensor, Tensor]:
    precision = ranking.positives / ranking.samples
    precision[0] = 1  # of no samples
    return precision, ranking.positives / ranking.positives[-1]


def _average_precision(ranking: Ranking) -> float:
    precision, _ = _precision_recall(ranking)
    return float((ranking.positives.diff() * precision[1:]).sum() / ranking.positives[-1])


def _false_positives_at_95(ranking: Ranking) -> float:
    """At the first point of the ROC curve whose true positive rate is at least 95 %."""
    false_positives, true_positives = _roc(ranking)
    return float(false_positives[(true_positives < 0.95).sum()])
