"""Does dsui give here what it gave where it was made? A small experiment run again, against its shipped figures.

`shipped/verify.yaml` is a grid on embedded digits, `shipped/verify.jsonl` the rows of its n seeds. r of the seeds are
trained and evaluated again as any study is. Fractions x are compared as log-odds ln(x / (1 - x)) and NLL as ln x, since
figures near their end are skewed. Of each figure, the mean here may lie from the mean of all shipped runs, of deviation
s, by

    k s,   k = t sqrt(1/r + 1/n)

with t the quantile of Student's t (n - 1 degrees) that new runs of normal figures exceed in 0.1 % of all verifications,
divided among the figures (Bonferroni). Of 4,000 times 20 and 3 of 100 seeds, 0.3 % would have been false alarms.
Equal seeds usually give equal figures; where rounding sends them other ways they are as good as new runs.

    python -m dsui.experiments.verification

writes the shipped rows anew, in the source tree.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

import torch

from dsui.errors import DsuiError, Stopped
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import Summary, summarize
from dsui.experiments.cell_run import Conditions
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.grid_file import parsed
from dsui.experiments.study import Study
from dsui.report.columns import Figure
from dsui.training.loop import InterruptedRun, SilentReporter

SHIPPED, GRID, ROWS = "shipped", "verify.yaml", "verify.jsonl"
SEEDS = (0, 1, 2)
FALSE_ALARMS = 1e-3
EQUAL = 1e-3
LEAST = 1e-4
"""Stands for 0, which has no logarithm; one test digit in 797 is more."""
Verdict = Literal["equal", "alike", "differs", "missing"]
Scale = Callable[[float], float]
Values = Mapping[tuple[str, Figure], Mapping[int, float]]
"""By method and figure, then by seed."""


@dataclass(frozen=True)
class Check:
    """`here` and `then`: the same seeds, here and as shipped. `shipped`: all shipped runs; `low`, `high`: what the mean
    here may be. "equal": every seed as shipped; "alike": not quite, but within these bounds."""

    method: str
    figure: Figure
    here: tuple[float, ...]
    then: tuple[float, ...]
    shipped: Summary
    low: float
    high: float
    verdict: Verdict


def experiment(seeds: Iterable[int] | None = None) -> Grid:
    """The shipped grid, or its cells of these seeds."""
    text = (resources.files("dsui.experiments") / SHIPPED / GRID).read_text(encoding="utf-8")
    grid = parsed(text, "verify")
    wanted = {cell.config.seed for cell in grid.cells} if seeds is None else set(seeds)
    return replace(grid, cells=tuple(cell for cell in grid.cells if cell.config.seed in wanted))


def shipped_rows() -> list[ResultRow]:
    lines = (resources.files("dsui.experiments") / SHIPPED / ROWS).read_text(encoding="utf-8").splitlines()
    return [ResultRow.from_json(line) for line in lines]


def run(grid: Grid, conditions: Conditions, told: Callable[[Cell], None] = lambda _cell: None) -> list[ResultRow]:
    """The rows of the grid's cells, trained and evaluated in a temporary folder; only what its table shows."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study(grid, Path(folder))
        try:
            for job in study.jobs(grid.cells):
                study.run(job, conditions, lambda cell, _seconds: told(cell))
        except InterruptedRun as stop:
            raise Stopped("stopped before the end; nothing is verified.") from stop
        for cell in grid.cells:
            if not study.done(cell):
                raise DsuiError(f"{cell.name} failed: {study.record(cell).get('error', 'it gave no results')}")
        return [shown for row in study.collect() if (shown := _shown(row, grid)).metrics]


def checks(here: Sequence[ResultRow], shipped: Sequence[ResultRow]) -> list[Check]:
    """One for each shipped figure, over the seeds that were run here."""
    now, then = _values(here), _values(shipped)
    seeds = sorted({row.seed for row in here})
    made = []
    for (method, figure), values in then.items():
        found = now.get((method, figure), {})
        again = tuple(found[seed] for seed in seeds if math.isfinite(found.get(seed, math.nan)))
        before = tuple(values[seed] for seed in seeds)
        to, back = _scale(figure.metric)
        centre = summarize(map(to, values.values()))
        width = deviations_allowed(len(seeds), centre.runs, len(then)) * (centre.deviation or 0.0)
        low, high = centre.mean - width, centre.mean + width
        if len(again) < len(seeds):
            verdict: Verdict = "missing"
        elif all(abs(one - other) <= EQUAL for one, other in zip(again, before, strict=True)):
            verdict = "equal"
        else:
            verdict = "alike" if low <= statistics.mean(map(to, again)) <= high else "differs"
        summary = summarize(values.values())
        made.append(Check(method, figure, again, before, summary, back(low), back(high), verdict))
    return made


def deviations_allowed(runs: int, shipped: int, figures: int) -> float:
    """k: how many deviations the mean of some runs may lie from that of the shipped ones."""
    from scipy import stats  # takes as long to load as all of dsui

    quantile = stats.t.ppf(1 - FALSE_ALARMS / (2 * figures), shipped - 1)
    return float(quantile * math.sqrt(1 / runs + 1 / shipped))


def _scale(metric: str) -> tuple[Scale, Scale]:
    """To where a figure is compared, and back."""
    if metric == "nll":
        return lambda x: math.log(max(x, LEAST)), math.exp
    return lambda x: math.log(max(x, LEAST) / max(1 - x, LEAST)), lambda y: 1 / (1 + math.exp(-y))


def _shown(row: ResultRow, grid: Grid) -> ResultRow:
    wanted = {name for b in grid.table if b.task == row.task and row.score in b.scores for name in b.metrics}
    return replace(row, metrics={name: value for name, value in row.metrics.items() if name in wanted})


def _values(rows: Iterable[ResultRow]) -> Values:
    values: dict[tuple[str, Figure], dict[int, float]] = {}
    for row in rows:
        for metric, value in row.metrics.items():
            figure = Figure(row.data, row.backbone, row.task, row.foreign, row.score, metric)
            values.setdefault((row.method, figure), {})[row.seed] = value
    return values


def main() -> None:
    conditions = Conditions(None, torch.device("cpu"), False, SilentReporter())
    rows = run(experiment(), conditions, lambda cell: print(cell.name, flush=True))
    (Path(__file__).parent / SHIPPED / ROWS).write_text("".join(f"{row.to_json()}\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()
