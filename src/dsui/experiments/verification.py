"""Does dsui give the same figures here as where it was made? A small experiment is repeated and compared.

`shipped/verify.yaml` is a grid on embedded digits, and `shipped/verify.jsonl` holds the rows of its n seeds. Here r of
the seeds are trained and evaluated again, like any study. Fractions x are compared as log-odds ln(x / (1 - x)) and NLL
as ln x, since figures near the end of their range are skewed. For each figure, the mean here may differ from the mean
of all shipped runs, whose deviation is s, by

    k s,   k = t sqrt(1/r + 1/n)

where t is a quantile of Student's t with n - 1 degrees of freedom. It is chosen such that new runs of normally
distributed figures exceed it in 0.1 % of all verifications, divided among the figures (Bonferroni). When 20 and 3 of
100 seeds were drawn 4,000 times, 0.3 % were false alarms. Equal seeds usually give equal figures; if rounding makes
them diverge, they are like new runs.

    python -m dsui.experiments.verification

writes the shipped rows again, in the source tree.
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
from dsui.experiments.cell_run import RunContext
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.grid_file import parse_grid
from dsui.experiments.study import Study
from dsui.progress import Progress, silent
from dsui.report.columns import Figure
from dsui.training.loop import InterruptedRun
from dsui.training.reporter import SilentReporter

SHIPPED, GRID, ROWS = "shipped", "verify.yaml", "verify.jsonl"
SEEDS = (0, 1, 2)
RUNNING = "training and evaluating runs"
FALSE_ALARMS = 1e-3
EQUAL = 1e-3
SMALLEST = 1e-4
"""Replaces 0, which has no logarithm; one of the 797 test digits is a larger fraction."""
Verdict = Literal["equal", "alike", "differs", "missing"]
Scale = Callable[[float], float]
Values = Mapping[tuple[str, Figure], Mapping[int, float]]
"""By method and figure, then by seed."""


@dataclass(frozen=True)
class Check:
    """One figure of one method, here and as shipped.

    `here` has a value for each seed, and `same_seeds` the shipped values of the same seeds. `shipped` summarizes all
    shipped runs, and `low` and `high` bound the mean here. The verdict is "equal" if every seed is as shipped, "alike"
    if the mean is within the bounds.
    """

    method: str
    figure: Figure
    here: tuple[float, ...]
    same_seeds: tuple[float, ...]
    shipped: Summary
    low: float
    high: float
    verdict: Verdict


def shipped_grid(seeds: Iterable[int] | None = None) -> Grid:
    """The shipped grid; with `seeds` only their cells."""
    text = (resources.files("dsui.experiments") / SHIPPED / GRID).read_text(encoding="utf-8")
    grid = parse_grid(text, "verify")
    kept = {cell.config.seed for cell in grid.cells} if seeds is None else set(seeds)
    return replace(grid, cells=tuple(cell for cell in grid.cells if cell.config.seed in kept))


def shipped_rows() -> list[ResultRow]:
    lines = (resources.files("dsui.experiments") / SHIPPED / ROWS).read_text(encoding="utf-8").splitlines()
    return [ResultRow.from_json(line) for line in lines]


def run_experiment(grid: Grid, context: RunContext, progress: Progress = silent) -> list[ResultRow]:
    """Train and evaluate the grid in a temporary folder; the rows hold only the metrics that its table shows."""
    finished: list[Cell] = []

    def cell_finished(cell: Cell, _seconds: float) -> None:
        finished.append(cell)
        progress(RUNNING, len(finished), len(grid.cells))

    progress(RUNNING, 0, len(grid.cells))
    with tempfile.TemporaryDirectory() as folder:
        study = Study(grid, Path(folder))
        try:
            for job in study.jobs(grid.cells):
                study.run(job, context, cell_finished)
        except InterruptedRun as stop:
            raise Stopped("stopped before the end; nothing is verified.") from stop
        for cell in grid.cells:
            if not study.done(cell):
                raise DsuiError(f"{cell.name} failed: {study.record(cell).get('error', 'it gave no results')}")
        return [kept for row in study.collect() if (kept := _select_metrics(row, grid)).metrics]


def compare_with_shipped(rows: Sequence[ResultRow], shipped: Sequence[ResultRow]) -> list[Check]:
    """A check for each shipped figure, over the seeds of `rows`."""
    values_here, values_shipped = _values_by_figure(rows), _values_by_figure(shipped)
    seeds = sorted({row.seed for row in rows})
    checks = []
    for (method, figure), values in values_shipped.items():
        found = values_here.get((method, figure), {})
        here = tuple(found[seed] for seed in seeds if math.isfinite(found.get(seed, math.nan)))
        same_seeds = tuple(values[seed] for seed in seeds)
        scale, unscale = _scale(figure.metric)
        centre = summarize(map(scale, values.values()))
        width = deviations_allowed(len(seeds), centre.runs, len(values_shipped)) * (centre.deviation or 0.0)
        low, high = centre.mean - width, centre.mean + width
        if len(here) < len(seeds):
            verdict: Verdict = "missing"
        elif all(abs(one - other) <= EQUAL for one, other in zip(here, same_seeds, strict=True)):
            verdict = "equal"
        else:
            verdict = "alike" if low <= statistics.mean(map(scale, here)) <= high else "differs"
        check = Check(
            method=method,
            figure=figure,
            here=here,
            same_seeds=same_seeds,
            shipped=summarize(values.values()),
            low=unscale(low),
            high=unscale(high),
            verdict=verdict,
        )
        checks.append(check)
    return checks


def deviations_allowed(runs: int, shipped: int, figures: int) -> float:
    """k: by how many deviations the mean of `runs` runs may differ from the mean of the shipped ones."""
    from scipy import stats  # loads as slowly as all of dsui

    quantile = stats.t.ppf(1 - FALSE_ALARMS / (2 * figures), shipped - 1)
    return float(quantile * math.sqrt(1 / runs + 1 / shipped))


def _scale(metric: str) -> tuple[Scale, Scale]:
    """The function to the scale on which a figure is compared, and its inverse."""
    if metric == "nll":
        return lambda x: math.log(max(x, SMALLEST)), math.exp
    return lambda x: math.log(max(x, SMALLEST) / max(1 - x, SMALLEST)), lambda y: 1 / (1 + math.exp(-y))


def _select_metrics(row: ResultRow, grid: Grid) -> ResultRow:
    shown = {name for b in grid.table if b.task == row.task and row.score in b.scores for name in b.metrics}
    return replace(row, metrics={name: value for name, value in row.metrics.items() if name in shown})


def _values_by_figure(rows: Iterable[ResultRow]) -> Values:
    values: dict[tuple[str, Figure], dict[int, float]] = {}
    for row in rows:
        for metric, value in row.metrics.items():
            figure = Figure(row.data, row.backbone, row.task, row.foreign, row.score, metric)
            values.setdefault((row.method, figure), {})[row.seed] = value
    return values


def main() -> None:
    context = RunContext(root=None, device=torch.device("cpu"), keep_outputs=False, reporter=SilentReporter())
    rows = run_experiment(shipped_grid(), context, lambda what, done, total: print(what, done, total, flush=True))
    (Path(__file__).parent / SHIPPED / ROWS).write_text("".join(f"{row.to_json()}\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()
