"""The uncertainty up to which images are accepted, chosen by n calibration images the model was not trained on.

By coverage c: the k-th smallest of their uncertainties, k = ceil((n + 1) c). A new image of the same kind is then
accepted with a probability of at least c and, without ties, below c + 1 / (n + 1): split conformal prediction
(Papadopoulos et al., ECML 2002), over the draw of the calibration images and of the new one.

This holds for any score that was not chosen by the calibration images, and for two scores at once by the larger of an
image's two ranks. The ranks r_i are those among the calibration images, from 1. With J the k-th smallest r_i the
two thresholds are the (J + 1)-th smallest values of their scores. Why J + 1: among all n + 1 images, the new one
included, the larger ranks R are exchangeable, so the new one's is at most the k-th smallest of the others' with a
probability of at least c. No other image's R is above r_i + 1, so that this R is at most J + 1, and then at most J
calibration values of either score are below the new one's. Without ties at most two images share an R, so the
probability is below c + 5 / (n + 1).

By risk: `dsui.runs.risk_control`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from dsui.errors import DsuiError
from dsui.runs.risk_control import limit_at_risk


class Threshold(NamedTuple):
    """Uncertainties up to `value` are accepted; the other fields are the effect on the calibration images."""

    value: float
    coverage: float
    """The share that is accepted."""
    risk: float
    """The share of the accepted ones that is predicted wrongly."""
    images: int
    """The number of calibration images."""


def at_coverage(uncertainties: Tensor, errors: Tensor, coverage: float) -> Threshold:
    """From [N] uncertainties and whether each prediction was wrong."""
    return _keeping(_number_to_keep(len(uncertainties), coverage), uncertainties, errors)


def joint_ranks(scores: Sequence[Tensor], among: Sequence[Tensor]) -> Tensor:
    """[N] the larger of an image's ranks by several scores [N], from 1, among the values [K] of other images, or of the
    same ones; equal values share the smallest rank."""
    ranks = [torch.searchsorted(others.sort().values, values) for values, others in zip(scores, among, strict=True)]
    return torch.stack(ranks).amax(0) + 1


def rank_for_coverage(ranks: Tensor, coverage: float) -> int:
    """The rank J + 1 of both thresholds, from the larger ranks [N] of the calibration images."""
    count = len(ranks)
    rank = int(ranks.sort().values[_number_to_keep(count, coverage) - 1]) + 1
    if rank > count:
        share = Fraction(str(coverage))
        enough = math.ceil((2 + share) / (1 - share))  # with these, k <= n - 2, and at most two images have rank n
        raise DsuiError(
            f"a coverage of {coverage} by two thresholds takes up to {enough} calibration images and there are "
            f"{count}; choose a lower one, use one threshold, or train with more images or a larger --calibration."
        )
    return rank


def images_needed(coverage: float) -> int:
    """The fewest images by which a threshold can promise this coverage."""
    share = Fraction(str(coverage))
    return math.ceil(share / (1 - share))


def _number_to_keep(count: int, coverage: float) -> int:
    """k of `count` images; an error where they are too few."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be a share of the images between 0 and 1, as in 0.95, got {coverage}.")
    share = Fraction(str(coverage))  # as the user wrote it: 20 * 0.95 is exactly 19
    kept = math.ceil((count + 1) * share)
    if kept > count:
        needed = images_needed(coverage)
        raise DsuiError(
            f"a coverage of {coverage} takes at least {needed} calibration images and there are {count}; "
            "choose a lower one, or train with more images or a larger --calibration."
        )
    return kept


def at_risk(uncertainties: Tensor, errors: Tensor, risk: float) -> Threshold:
    """From [N] uncertainties and whether each prediction was wrong."""
    return _up_to(limit_at_risk(uncertainties, errors, risk), uncertainties, errors)


def _keeping(count: int, uncertainties: Tensor, errors: Tensor) -> Threshold:
    """The threshold that accepts the `count` smallest uncertainties, and any that tie with the last of them."""
    return _up_to(uncertainties.sort().values[count - 1].item(), uncertainties, errors)


def _up_to(value: float, uncertainties: Tensor, errors: Tensor) -> Threshold:
    accepted = uncertainties <= value
    risk = errors[accepted].to(torch.float64).mean().item()
    return Threshold(value, accepted.to(torch.float64).mean().item(), risk, len(uncertainties))
