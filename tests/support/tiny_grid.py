"""A grid of two runs and three cells that trains for seconds on embedded digits, and studies of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dsui.evaluation.results import ResultRow
from dsui.experiments.cell_run import RunContext
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import parse_grid
from dsui.experiments.study import Study
from dsui.methods.rkl import ReversePriorNetwork
from dsui.training.reporter import SilentReporter

TINY = """
title: Tiny
data: digits
backbone: small
recipe: demo
set: {epochs: 2}
seeds: [0]
tasks: [misclassification]
runs:
  - {method: msp, as: [msp, rkl]}
  - {method: dsui}
table:
  - {task: accuracy, metrics: accuracy, scores: prediction}
  - {task: misclassification, metrics: auroc, scores: max_probability}
"""
"""rkl stands in for mc-dropout, which needs a neck and five times as long: import `rkl_reads_msp` as well."""


@pytest.fixture(autouse=True, scope="module")
def rkl_reads_msp() -> Iterator[None]:
    """In a test that imports this, rkl may predict with msp's weights, whose shapes are its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReversePriorNetwork, "reads_weights_of", ("msp",))
        yield


CONTEXT = RunContext(root=None, device=torch.device("cpu"), keep_outputs=False, reporter=SilentReporter())


def tiny_study(out: Path, text: str = TINY, root: Path | None = None) -> Study:
    return Study(parse_grid(text, "tiny"), out, root)


def run_study(study: Study, context: RunContext = CONTEXT) -> list[Cell]:
    """The cells that ended, in order."""
    ended: list[Cell] = []
    for job in study.jobs(study.grid.cells):
        study.run(job, context, lambda cell, _seconds: ended.append(cell))
    return ended


def figures(rows: list[ResultRow]) -> list[tuple[object, ...]]:
    """What two studies that did the same must agree on: all but the time they took."""
    timed = {"seconds_per_1000"}
    return [
        (
            row.run,
            row.method,
            row.task,
            row.foreign,
            row.score,
            {k: v for k, v in row.metrics.items() if k not in timed},
        )
        for row in rows
    ]


def row_of(
    cell: Cell, task: str, score: str | None, foreign: str | float | None, metrics: dict[str, float]
) -> ResultRow:
    """A row as the cell would leave it, with these metrics."""
    config = cell.config
    facts = (cell.run_name, cell.predictor, None, config.data, config.backbone, config.recipe.name, config.seed)
    return ResultRow(*facts, task, foreign, score, metrics, None, None, None, None, {}, None, None, None)
