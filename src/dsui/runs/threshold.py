"""The uncertainty up to which images are accepted, chosen by n calibration images the model was not trained on.

By coverage c: the k-th smallest of their uncertainties, k = ceil((n + 1) c). A new image of the same kind is then
accepted with a probability of at least c and, without ties, below c + 1 / (n + 1): split conformal prediction
(Papadopoulos et al., ECML 2002), over the draw of the calibration images and of the new one.

By risk r: the largest of the coverages 5 %, 10 %, ..., 100 % at which the number of wrong images among the accepted
ones is within an allowed count. The counts are exact for a score without information on images that are wrong with
chance r: the chance that any of the 20 counts is met is at most 5 %. Each count is the lower quantile of the binomial
distribution, as in the bound of Clopper and Pearson, at one level for all 20; the level is the largest that keeps the
5 %. So with a probability of 95 % over the draw of the calibration images, at most a share r of accepted images of the
same kind is wrong, provided that more certain images are not more often wrong. At 100 % the threshold is the largest
calibration uncertainty and not infinity, because neither guarantee is about foreign images.

All of this holds for any score that was not chosen by the calibration images, and for two scores at once by the larger
of an image's two ranks. The ranks r_i are those among the calibration images, from 1. With J the k-th smallest r_i the
two thresholds are the (J + 1)-th smallest values of their scores. Why J + 1: among all n + 1 images, the new one
included, the larger ranks R are exchangeable, so the new one's is at most the k-th smallest of the others' with a
probability of at least c. No other image's R is above r_i + 1, so that this R is at most J + 1, and then at most J
calibration values of either score are below the new one's. Without ties at most two images share an R, so the
probability is below c + 5 / (n + 1). By risk, J itself is the rank: given the scores, the counts of errors have the
same distribution for the order by ranks as for any other order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.errors import DsuiError

CONFIDENCE = 0.95
LEVELS = 20
HALVINGS = 12
"""Of the interval that holds the common level: its precision is a part in four thousand."""


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


def _number_to_keep(count: int, coverage: float) -> int:
    """k of `count` images; an error where they are too few."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be a share of the images between 0 and 1, as in 0.95, got {coverage}.")
    share = Fraction(str(coverage))  # as the user wrote it: 20 * 0.95 is exactly 19
    kept = math.ceil((count + 1) * share)
    if kept > count:
        needed = math.ceil(share / (1 - share))
        raise DsuiError(
            f"a coverage of {coverage} takes at least {needed} calibration images and there are {count}; "
            "choose a lower one, or train with more images or a larger --calibration."
        )
    return kept


def at_risk(uncertainties: Tensor, errors: Tensor, risk: float) -> Threshold:
    """From [N] uncertainties and whether each prediction was wrong."""
    if not 0 < risk < 1:
        raise ValueError(f"risk must be a share of wrong predictions between 0 and 1, as in 0.02, got {risk}.")
    count = len(uncertainties)
    ordered, order = uncertainties.sort()
    wrong = errors[order].cumsum(0)
    for kept, allowed in reversed(allowed_errors(count, risk)):
        accepted = int(torch.searchsorted(ordered, ordered[kept - 1], right=True))  # with those that tie with the last
        if wrong[accepted - 1] <= allowed:
            return _keeping(kept, uncertainties, errors)
    needed = math.ceil(min(math.log(1 - CONFIDENCE) / math.log1p(-risk), sys.maxsize))
    raise DsuiError(
        f"{count} calibration images, {int(wrong[-1])} of them predicted wrongly, cannot assure a risk of {risk}: that "
        f"takes at least {needed} accepted ones without an error, more with errors; allow a larger risk, or train with "
        "more images or a larger --calibration."
    )


@lru_cache
def allowed_errors(images: int, risk: float) -> tuple[tuple[int, int], ...]:
    """For each coverage the number of images it keeps, and how many of these may be wrong; -1 where even no error would
    not suffice.

    Images that are wrong with chance `risk`, independently, meet one of the counts with a chance of at most 5 %.
    """
    from scipy import stats  # takes as long to load as all of dsui

    counts = np.array([-(-level * images // LEVELS) for level in range(1, LEVELS + 1)])

    def quantiles(level: float) -> NDArray[np.int64]:
        largest = stats.binom.ppf(level, counts, risk)  # the smallest count whose chance is at least the level
        most: NDArray[np.int64] = (largest - (stats.binom.cdf(largest, counts, risk) > level)).astype(np.int64)
        return most

    low, high = (1 - CONFIDENCE) / LEVELS, 1 - CONFIDENCE  # the lower one keeps 5 % by the union bound
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        kept = _chance_of_any(counts, quantiles(middle), risk) <= 1 - CONFIDENCE
        low, high = (middle, high) if kept else (low, middle)
    return tuple(zip(counts.tolist(), quantiles(low).tolist(), strict=True))


def _chance_of_any(counts: NDArray[np.int64], allowed: NDArray[np.int64], risk: float) -> float:
    """The chance that the errors among the first k images are at most the allowed ones, for any k of `counts`."""
    from scipy import stats

    met, former = 0.0, 0
    counted = max(allowed[-1], 0) + 1  # with more errors no count can be met
    chances = np.ones(1)  # of 0, 1, ... errors so far, where no count was met yet
    for count, most in zip(counts, allowed, strict=True):
        added = stats.binom.pmf(np.arange(counted), count - former, risk)
        chances = np.convolve(chances, added)[:counted]
        met += chances[: most + 1].sum()
        chances[: most + 1] = 0  # none where `most` is -1
        former = count
    return float(met)


def _keeping(count: int, uncertainties: Tensor, errors: Tensor) -> Threshold:
    """The threshold that accepts the `count` smallest uncertainties, and any that tie with the last of them."""
    value = uncertainties.sort().values[count - 1]
    accepted = uncertainties <= value
    risk = errors[accepted].to(torch.float64).mean().item()
    return Threshold(value.item(), accepted.to(torch.float64).mean().item(), risk, len(uncertainties))
