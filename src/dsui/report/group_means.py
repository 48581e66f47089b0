"""Means over groups of foreign sets, as OpenOOD's near and far (Zhang et al., 2023).

    metric of a group = plain mean of the metric over its sets, for each run and score

A set that is the run's own data is not foreign to it and left out: one group near of CIFAR-10, CIFAR-100 and Tiny
ImageNet means CIFAR-100 and Tiny ImageNet for runs on CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dsui.evaluation.results import ResultRow

Groups = Mapping[str, Sequence[str]]
"""By name: the foreign sets of a group."""
TASK = "ood"


def group_columns(groups: Groups, data: str) -> dict[str, tuple[str, ...]]:
    """The groups for runs on `data`: what stands in the place of a foreign set, and the sets it is the mean of."""
    own = {name: tuple(each for each in sets if each != data) for name, sets in groups.items()}
    return {f"{name}, mean of {' and '.join(sets)}": sets for name, sets in own.items() if len(sets) > 1}


def with_group_means(rows: Iterable[ResultRow], groups: Groups) -> list[ResultRow]:
    """The rows, and behind them one for each group of each run and score that has figures for all of its sets."""
    every = list(rows)
    found: dict[tuple[object, ...], dict[object, ResultRow]] = {}
    for row in every if groups else ():
        if row.task == TASK:
            key = (row.identity, row.method, row.data, row.backbone, row.recipe, row.seed, row.score, row.protocol)
            found.setdefault(key, {})[row.foreign] = row
    return [*every, *(mean for by_set in found.values() for mean in _means(by_set, groups))]


def _means(by_set: Mapping[object, ResultRow], groups: Groups) -> Iterable[ResultRow]:
    """The rows of the groups, from those of one run and score by foreign set."""
    row = next(iter(by_set.values()))
    for name, sets in group_columns(groups, row.data).items():
        if all(each in by_set for each in sets):
            metrics = [by_set[each].metrics for each in sets]
            shared = set.intersection(*map(set, metrics))
            means = {key: sum(each[key] for each in metrics) / len(sets) for key in metrics[0] if key in shared}
            yield replace(row, foreign=name, metrics=means, n_positive=None, n_negative=None)
