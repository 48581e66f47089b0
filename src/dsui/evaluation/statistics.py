"""Do two methods differ by more than chance?

Over runs: mean, deviation (ddof 1) and an unpaired t-test. Student's, for equal variances, is the paper's:

    t = (m1 - m2) / sqrt(s^2 (1/n1 + 1/n2)),  s^2 = ((n1 - 1) s1^2 + (n2 - 1) s2^2) / (n1 + n2 - 2)

with n1 + n2 - 2 degrees of freedom; Welch's takes s1^2 / n1 + s2^2 / n2 and fewer degrees. A table holds many tests:
the correction of Holm (1979) bounds the chance of any false mark in it.

How much they differ is told by an interval around m1 - m2, Welch's (`difference_interval`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dsui.checks import check_at_least

LEVEL = 0.05
DIFFERENT, ALIKE, UNTESTED = "\u2713", "\u00d7", "n/a"  # check mark and cross, as in the paper


@dataclass(frozen=True)
class Summary:
    """A metric over several runs; `deviation` is None where it is unknown or there is only one run."""

    mean: float
    deviation: float | None
    runs: int


def summarize(values: Iterable[float]) -> Summary:
    """Mean and deviation from exact sums, rounded once: the deviation of equal runs is exactly 0."""
    runs = [float(value) for value in values]
    check_at_least("the number of runs", len(runs), 1)
    if infinite := [value for value in runs if not math.isfinite(value)]:
        raise ValueError(f"{len(infinite)} of {len(runs)} runs have no finite figure; leave them out.")
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


class Interval(NamedTuple):
    low: float
    high: float


def difference_interval(first: Summary, second: Summary, level: float = LEVEL) -> Interval | None:
    """The interval that holds the true first - second in 1 - `level` of all cases; None where there is an `obstacle`.

    Welch's, without the assumption that both deviate equally: with v = s^2 / n of each,

        m1 - m2 +- t(1 - level / 2; d) sqrt(v1 + v2),  d = (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1))

    Without any deviation it is the difference alone.
    """
    if obstacle(first, second) or first.deviation is None or second.deviation is None:
        return None
    difference = first.mean - second.mean
    v1, v2 = first.deviation**2 / first.runs, second.deviation**2 / second.runs
    if v1 + v2 == 0:
        return Interval(difference, difference)
    from scipy import stats  # takes as long to load as all of dsui

    share = v1 / (v1 + v2)  # d by shares: squares of v itself may underflow
    freedom = 1 / (share**2 / (first.runs - 1) + (1 - share) ** 2 / (second.runs - 1))
    half = float(stats.t.ppf(1 - level / 2, freedom)) * math.sqrt(v1 + v2)
    return Interval(difference - half, difference + half)


def mark(p: float, level: float = LEVEL) -> str:
    """DIFFERENT or ALIKE at this level; UNTESTED for nan, where no test was possible."""
    if math.isnan(p):
        return UNTESTED
    return DIFFERENT if p < level else ALIKE


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: the k-th smallest of m becomes max over j <= k of (m - j + 1) p_j, at most 1.

    Tests that were not possible (nan) stay nan and do not count.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[place] = largest
    return adjusted


def mean_ranks(figures: Mapping[str, Sequence[float]], higher_is_better: Sequence[bool]) -> dict[str, float]:
    """Each method's rank averaged over the columns, 1 for the best; equal figures share the mean of their ranks.

    A column in which a method has no figure (nan) is left out for all methods; without any column the ranks are nan.
    """
    from scipy import stats

    columns = [
        stats.rankdata([-value if higher else value for value in column])
        for column, higher in zip(zip(*figures.values(), strict=True), higher_is_better, strict=True)
        if not any(map(math.isnan, column))
    ]
    means = [statistics.mean(map(float, ranks)) for ranks in zip(*columns, strict=True)] or [math.nan] * len(figures)
    return dict(zip(figures, means, strict=True))
