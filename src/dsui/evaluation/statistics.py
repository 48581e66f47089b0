"""Do two methods differ by more than chance?

Over runs: mean, deviation (ddof 1) and an unpaired t-test. Student's, for equal variances, is the paper's:

    t = (m1 - m2) / sqrt(s^2 (1/n1 + 1/n2)),  s^2 = ((n1 - 1) s1^2 + (n2 - 1) s2^2) / (n1 + n2 - 2)

with n1 + n2 - 2 degrees of freedom; Welch's takes s1^2 / n1 + s2^2 / n2 and fewer degrees. A table holds many tests:
Holm (1979) bounds the chance of any false mark in it.
Over images: a paired bootstrap (Efron, 1979) for two models on the same images, with one run of each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsui.checks import check_at_least
from dsui.evaluation.metrics import aupr, auroc

LEVEL = 0.05
DIFFERENT, ALIKE, UNTESTED = "\u2713", "\u00d7", "n/a"  # check mark and cross, as in the paper
DRAWS_AT_ONCE = 2**21  # of the bootstrap: bounds its memory to some 100 MB


@dataclass(frozen=True)
class Summary:
    """What several runs gave; `deviation` is None where it is not known or one run has none."""

    mean: float
    deviation: float | None
    runs: int


def summarize(values: Iterable[float]) -> Summary:
    """Mean and deviation as exact sums, rounded once: equal runs deviate by 0, not by rounding."""
    runs = [float(value) for value in values]
    check_at_least("the number of runs", len(runs), 1)
    if strange := [value for value in runs if not math.isfinite(value)]:
        raise ValueError(f"{len(strange)} of {len(runs)} runs have no finite figure; leave them out.")
    return Summary(statistics.mean(runs), statistics.stdev(runs) if len(runs) > 1 else None, len(runs))


def obstacle(first: Summary, second: Summary) -> str | None:
    """Why the two cannot be tested, or None."""
    if min(first.runs, second.runs) < 2:
        return "fewer than two runs"
    if first.deviation is None or second.deviation is None:
        return "no deviation"
    return None


def t_test(first: Summary, second: Summary, equal_variances: bool = True) -> float:
    """The two-sided p of Student's test, or of Welch's for unequal variances; nan where there is an `obstacle`.

    Without any deviation the means decide: p = 1 if they are equal, else 0.
    """
    if obstacle(first, second) or first.deviation is None or second.deviation is None:
        return math.nan
    if first.deviation == second.deviation == 0:
        return float(first.mean == second.mean)
    from scipy import stats  # takes as long to load as all of dsui

    result = stats.ttest_ind_from_stats(
        first.mean, first.deviation, first.runs, second.mean, second.deviation, second.runs, equal_variances
    )
    return float(result.pvalue)


def mark(p: float, level: float = LEVEL) -> str:
    """DIFFERENT or ALIKE at this level, UNTESTED for the nan of a test that could not be made."""
    if math.isnan(p):
        return UNTESTED
    return DIFFERENT if p < level else ALIKE


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: the k-th smallest of m becomes max over j <= k of (m - j + 1) p_j, at most 1.

    Tests that were not made (nan) stay nan and do not count.
    """
    made = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(made):
        largest = max(largest, min(1.0, (len(made) - rank) * p))
        adjusted[place] = largest
    return adjusted


def mean_ranks(figures: Mapping[str, Sequence[float]], higher_is_better: Sequence[bool]) -> dict[str, float]:
    """Each method's rank averaged over the columns, 1 for the best; equal figures share the mean of their ranks.

    A column in which a method has no figure (nan) does not count for any of them; without a column left, nan.
    """
    from scipy import stats

    columns = [
        stats.rankdata([-value if higher else value for value in column])
        for column, higher in zip(zip(*figures.values(), strict=True), higher_is_better, strict=True)
        if not any(map(math.isnan, column))
    ]
    means = [statistics.mean(map(float, ranks)) for ranks in zip(*columns, strict=True)] or [math.nan] * len(figures)
    return dict(zip(figures, means, strict=True))


Metric = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Difference:
    """First minus second, its interval, and the two-sided p of no difference."""

    value: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    metric: Metric,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """How `metric(scores, positive)` differs between two models on the same images, which are drawn anew with return.

    Each model is its (scores, positive), both [N], image for image; the marks differ where errors are to be found.
    The interval is the percentile one; p is twice the share of resamples on the rarer side of zero, the images as they
    are counting as one more there. Resamples without a figure, for want of a positive, are left out.
    """
    check_at_least("resamples", resamples, 1)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}.")
    samples = len(first[0])
    if len(second[0]) != samples:
        raise ValueError(f"the models scored {samples} and {len(second[0])} images; score the same images with both.")
    value = metric(*first) - metric(*second)
    of_first, of_second = _on_resamples(metric, *first), _on_resamples(metric, *second)
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for block in torch.arange(resamples).split(max(1, DRAWS_AT_ONCE // samples)):
        images = torch.randint(samples, (len(block), samples), generator=generator)
        drawn.append(of_first(images) - of_second(images))
    differences = torch.cat(drawn)
    differences = differences[~differences.isnan()]
    if math.isnan(value) or len(differences) == 0:
        return Difference(math.nan, math.nan, math.nan, math.nan)
    low, high = differences.quantile(differences.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2])).tolist()
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return Difference(value, low, high, min(1.0, 2 * (rarer + 1) / (len(differences) + 1)))


def _on_resamples(metric: Metric, scores: Tensor, positive: Tensor) -> Callable[[Tensor], Tensor]:
    """The function from drawn images [R, N] to the metric on each draw [R]."""
    scores, positive = scores.cpu(), positive.cpu().bool()
    if metric not in _FROM_COUNTS:
        return lambda images: torch.tensor([metric(scores[i], positive[i]) for i in images], dtype=torch.float64)
    from_counts = _FROM_COUNTS[metric]
    steps, step = scores.unique(sorted=True, return_inverse=True)
    cell = 2 * step + positive  # scores are sorted once; a draw only counts negatives and positives at each step
    cells = 2 * len(steps)

    def figures(images: Tensor) -> Tensor:
        offset = cells * torch.arange(len(images)).unsqueeze(1)
        counts = torch.bincount((cell[images] + offset).flatten(), minlength=cells * len(images))
        misses, hits = counts.view(len(images), -1, 2).double().unbind(2)
        return from_counts(misses, hits)

    return figures


def _auroc_from_counts(misses: Tensor, hits: Tensor) -> Tensor:
    """Both [R, S], over the S distinct scores in ascending order."""
    below = misses.cumsum(1) - misses
    return (hits * (below + misses / 2)).sum(1) / (hits.sum(1) * misses.sum(1))


def _aupr_from_counts(misses: Tensor, hits: Tensor) -> Tensor:
    hits_above, above = (part.flip(1).cumsum(1).flip(1) for part in (hits, hits + misses))
    recalled = (hits * hits_above / above.clamp(min=1)).sum(1) / hits.sum(1)
    return recalled.masked_fill(misses.sum(1) == 0, math.nan)


_FROM_COUNTS: dict[Metric, Callable[[Tensor, Tensor], Tensor]] = {auroc: _auroc_from_counts, aupr: _aupr_from_counts}
