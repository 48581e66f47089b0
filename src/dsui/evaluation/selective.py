"""Selective prediction: rank the samples, keep the most certain ones, and count how often those are wrong.

Of n samples the k most certain are kept, with E_k errors among them: coverage k / n, risk E_k / k, and generalised
risk E_k / n (Traub et al., NeurIPS 2024), the chance that a sample is both kept and wrong. AURC (Geifman et al.,
ICLR 2019) is the mean of the risk over k, AUGRC the area under the generalised risk over coverage from 0 to 1.
Samples of equal score have no order: E_k is the mean over all their orders, a straight line within the group.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

COVERAGES = (0.8, 0.9, 0.95)
"""The coverages whose risk `selective_metrics` reports."""


class Ranking(NamedTuple):
    """Running counts over the distinct scores, largest first: [G + 1] float64, from 0 to all."""

    samples: Tensor
    positives: Tensor

    @property
    def negatives(self) -> Tensor:
        return self.samples - self.positives

    def reversed(self) -> Ranking:
        """The same samples, smallest score first."""
        return Ranking(*(part[-1] - part.flip(0) for part in self))


def rank(scores: Tensor, positive: Tensor) -> Ranking:
    """Sort once, in the data type of the scores; equal scores make one step, and infinities may occur."""
    check_marked(scores, positive)
    ordered, order = scores.sort(descending=True)
    ends = F.pad(ordered[1:] != ordered[:-1], (0, 1), value=True).nonzero().squeeze(1)
    positives = positive[order].long().cumsum(0)[ends]
    return Ranking(*(F.pad(part, (1, 0)).double() for part in (ends + 1, positives)))


def check_marked(scores: Tensor, marks: Tensor) -> None:
    """Raise unless these are two vectors of one length, the scores numbers and the marks true or false."""
    if scores.ndim != 1 or scores.shape != marks.shape:
        raise ValueError(
            f"scores {list(scores.shape)} and marks {list(marks.shape)} must be two vectors of one length."
        )
    if len(scores) == 0:
        raise ValueError("there are no scores to rank.")
    if bool(scores.isnan().any()):
        raise ValueError(f"{int(scores.isnan().sum())} of {len(scores)} scores are NaN and cannot be ranked.")
    if bool(((marks != 0) & (marks != 1)).any()):
        raise ValueError("marks must be true or false (1 or 0) for every sample.")


def risk_coverage_curve(scores: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Coverage and risk of keeping the k most certain samples, k = 1..n. [n], [n]"""
    return _risk_coverage(rank(scores, errors))


def aurc(scores: Tensor, errors: Tensor) -> float:
    """Area under the risk-coverage curve: the mean over k of the error rate among the k most certain samples."""
    return selective_metrics(scores, errors)["aurc"]


def e_aurc(scores: Tensor, errors: Tensor) -> float:
    """AURC less e + (1 - e) ln(1 - e), to which the AURC of a perfect ranking of error rate e falls as n grows."""
    return selective_metrics(scores, errors)["e_aurc"]


def augrc(scores: Tensor, errors: Tensor) -> float:
    """Area under the generalised risk: (1 - AUROC) a (1 - a) + (1 - a)^2 / 2 at accuracy a."""
    return selective_metrics(scores, errors)["augrc"]


def selective_risk(scores: Tensor, errors: Tensor, coverage: float) -> float:
    """The error rate among the most certain samples, as few as make up at least this share of all."""
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage must be above 0 and at most 1, got {coverage}.")
    return _risk_at(coverage, *risk_coverage_curve(scores, errors))


def selective_metrics(scores: Tensor, errors: Tensor) -> dict[str, float]:
    """AURC, E-AURC, AUGRC and the risk at `COVERAGES`, from one sort."""
    ranking = rank(scores, errors)
    coverages, risks = _risk_coverage(ranking)
    area, rate = float(risks.mean()), float(risks[-1])
    kept = ranking.reversed()
    return {
        "aurc": area,
        "e_aurc": area - rate - ((1 - rate) * math.log1p(-rate) if rate < 1 else 0.0),
        "augrc": float(torch.trapezoid(kept.positives, kept.samples) / kept.samples[-1].square()),
        **{f"risk_at_{round(100 * share)}": _risk_at(share, coverages, risks) for share in COVERAGES},
    }


def _risk_coverage(ranking: Ranking) -> tuple[Tensor, Tensor]:
    kept = ranking.reversed()
    sizes = kept.samples.diff()
    group = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes.long())
    rate = kept.positives.diff() / sizes
    count = torch.arange(1, len(group) + 1, dtype=torch.float64, device=sizes.device)
    errors = kept.positives[group] + (count - kept.samples[group]) * rate[group]
    return count / count[-1], errors / count


def _risk_at(coverage: float, coverages: Tensor, risks: Tensor) -> float:
    return float(risks[(coverages < coverage).sum()])
