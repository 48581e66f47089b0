"""The largest threshold up to which at most a share r of the accepted images is wrong, with a confidence of 95 %.

Learn then test (Angelopoulos et al., 2021). Each calibration value v is a candidate: to accept the images whose score
is below v. Of n calibration images N lie below it and S of these are wrong. Given v and N, those below it are
independent draws of accepted images. So S is Binomial(N, R) with the true risk R among accepted images, and "R is above
r" is refuted at the level a if S is at most the largest count that Binomial(N, r) does not exceed with a chance of at
most a. That is exact, as the bound of Clopper and Pearson is, whatever the score is.

For one score the candidates are tested in sequence, upwards from cautious ones, each at the full level, until one
fails. Why this keeps the level though the candidates are themselves calibration values, and though R may rise and fall:
divide the scores at the points where R crosses r. Between two such points, and before the first, the images' risk is r
on average (at least r where R jumps). So given how many calibration images lie between which points, S of the first
candidate with R above r is at least Binomial(N, r) in distribution. And these numbers alone decide which candidate that
is, as every calibration value is a candidate: none lies in a stretch that was left out.

A sequence may fail at its beginning, where a single error decides. So there are up to three, each from a start of its
own with an equal part of the 5 %; one that reaches the next start hands its part on (the fallback procedure: Wiens,
2003). The first starts at the number of images that suffice if none is wrong, the last one at the largest candidate,
and one between them at equal ratios. With few images there are fewer.

For two scores a candidate is a rank J: both scores below their J-th smallest value. Taking images away from the
outside, the rest is always a draw from what is still inside, so each candidate alone is exact as before. But the path
of such boxes is not fixed in advance and the argument above does not hold for it. So twenty candidates, of about 5 %,
10 %, ... of the images, share the 5 % equally (Bonferroni), without those that could not be met.

No assumption is made on the score: more certain images may be more often wrong, and scores may be equal. Images at a
candidate value itself are never accepted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.errors import DsuiError

CONFIDENCE = 0.95
STARTS = 3
LEVELS = 20
"""Candidates for two scores."""


def limit_at_risk(scores: Tensor, errors: Tensor, risk: float) -> float:
    """The largest score that is accepted, from [N] scores and whether each prediction was wrong."""
    _check(risk)
    ordered, order = scores.to(torch.float64).sort()
    below = torch.searchsorted(ordered, ordered).numpy()  # [N] images below each of the values
    wrong = np.concatenate([[0], errors[order].cumsum(0).numpy()])[below]
    best = _longest(below, wrong, risk)
    if best is None:
        raise _refused(len(scores), int(errors.sum()), risk)
    return _just_below(ordered[best])


def limits_at_risk(scores: Sequence[Tensor], errors: Tensor, risk: float) -> list[float]:
    """The largest values of several scores, [N] each, that are accepted; an image must pass them all."""
    _check(risk)
    count, sorts = len(errors), [each.to(torch.float64).sort().values for each in scores]
    ranks = [torch.searchsorted(values, each, right=True) for values, each in zip(sorts, scores, strict=True)]
    largest = torch.stack(ranks).amax(0)  # an image is inside J if this is below J
    outwards = largest.sort().values
    candidates = [(int(outwards[kept]), kept) for kept in _kept_of_levels(count, risk)]
    allowed = allowed_errors(count, risk, (1 - CONFIDENCE) / max(len(candidates), 1))
    for rank, _ in reversed(candidates):
        inside = largest < rank
        if int(errors[inside].sum()) <= allowed[int(inside.sum())]:
            return [_just_below(values[rank - 1]) for values in sorts]
    raise _refused(count, int(errors.sum()), risk)


def _check(risk: float) -> None:
    if not 0 < risk < 1:
        raise ValueError(f"risk must be a share of wrong predictions between 0 and 1, as in 0.02, got {risk}.")


def _longest(below: NDArray[np.int64], wrong: NDArray[np.int64], risk: float) -> int | None:
    """The index of the largest candidate that a sequence reaches."""
    count = len(below)
    starts = starts_of(count, risk)
    best, parts = None, 0
    for start, end in zip(starts, (*starts, count)[1:], strict=True):
        parts += 1
        allowed = allowed_errors(count, risk, (1 - CONFIDENCE) * parts / len(starts))
        failed = np.flatnonzero(wrong[start:end] > allowed[below[start:end]])
        reached = int(failed[0]) if len(failed) else end - start
        if reached:
            best = start + reached - 1
        parts = 0 if len(failed) else parts
    return best


@lru_cache
def starts_of(images: int, risk: float) -> tuple[int, ...]:
    """Where the sequences start: numbers of images below the first candidate. None where no candidate could be met."""
    number = min(STARTS, images // needed(risk))
    while number > 1 and needed(risk, number) >= images:
        number -= 1
    first = needed(risk, max(number, 1))
    if first >= images:
        return ()
    ratio = (images - 1) / first
    return tuple(sorted({round(first * ratio ** (place / max(number - 1, 1))) for place in range(max(number, 1))}))


def needed(risk: float, parts: int = 1) -> int:
    """The images that suffice if none is wrong, at a level of 5 % / `parts`."""
    return math.ceil(min(math.log((1 - CONFIDENCE) / parts) / math.log1p(-risk), sys.maxsize))


def _kept_of_levels(images: int, risk: float) -> list[int]:
    """How many images the candidates for two scores keep at most: those that could be met if all share the 5 %."""
    every = [min(-(-level * images // LEVELS), images - 1) for level in range(1, LEVELS + 1)]
    for number in range(LEVELS, 0, -1):
        if every[-number] >= needed(risk, number):
            return every[-number:]
    return []


@lru_cache
def allowed_errors(images: int, risk: float, level: float) -> NDArray[np.int64]:
    """[n + 1] for each number of accepted images the largest count of errors that images which are wrong with chance
    `risk` do not exceed with a chance of at most `level`; -1 where even no error is likelier."""
    from scipy import stats  # takes as long to load as all of dsui

    accepted = np.arange(images + 1)
    largest = stats.binom.ppf(level, accepted, risk)  # the smallest count whose chance is at least the level
    most: NDArray[np.int64] = (largest - (stats.binom.cdf(largest, accepted, risk) > level)).astype(np.int64)
    return most


def _just_below(value: Tensor) -> float:
    return math.nextafter(value.item(), -math.inf)


def _refused(images: int, wrong: int, risk: float) -> DsuiError:
    return DsuiError(
        f"{images} calibration images, {wrong} of them predicted wrongly, cannot assure a risk of {risk}: that "
        f"takes at least {needed(risk)} accepted ones without an error, more with errors; allow a larger risk, or "
        "train with more images or a larger --calibration."
    )
