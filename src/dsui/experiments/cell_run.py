"""One cell of a study from data to results: train its run, or continue it, then evaluate it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsui.evaluation.evaluate import open_evaluation
from dsui.evaluation.results import ResultRow
from dsui.evaluation.sources import Part
from dsui.experiments.figure_points import distributions, embedding
from dsui.experiments.grid import Cell
from dsui.progress import Progress, silent
from dsui.runs.folder import CONFIG, WEIGHTS
from dsui.runs.images import held_out_images, read_split, training_images
from dsui.runs.model import run_facts
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import Reporter
from dsui.training.step import Mode


class CellResult(NamedTuple):
    """The results rows of a cell, and the points that a figure needs besides them."""

    rows: list[ResultRow]
    points: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all cells of a study have in common when they run.

    `root` is the folder of the data sets, `keep_outputs` leaves the network's outputs in the run folder, `reporter`
    hears of training and `progress` of evaluation, `warn` gets sentences for the user, `mode` is how training steps are
    executed. At `stop_at`, as `time.time()` counts, training is saved and stopped, and after `ends_at` no evaluation
    begins.
    """

    root: Path | None
    device: torch.device
    keep_outputs: bool
    reporter: Reporter
    progress: Progress = silent
    warn: Callable[[str], None] = lambda _sentence: None
    mode: Mode | None = None
    stop_at: float = math.inf
    ends_at: float = math.inf


def train(cell: Cell, run: Path, context: RunContext) -> None:
    """Train the run to the end, from its last checkpoint if it has one; do nothing if it has its weights."""
    if (run / WEIGHTS).exists():
        return
    config = cell.config
    whole = read_split(config, config.data, "train", context.root)
    images = training_images(config, whole)
    held_out = None if config.held_out == 0 else held_out_images(config, whole)
    outliers = None if config.outliers is None else read_split(config, config.outliers, "train", context.root)
    torch.backends.cudnn.benchmark = True
    fit(
        config,
        images,
        run,
        context.device,
        World(),
        context.reporter,
        resume=(run / CONFIG).exists(),
        mode=context.mode,
        outliers=outliers,
        held_out=held_out,
        stop_at=context.stop_at,
    )


def evaluate(cell: Cell, run: Path, context: RunContext) -> CellResult:
    """Evaluate on the test split or, if the run held images out, on those: settings selected by them see no test
    image."""
    facts = run_facts(run, None if cell.predictor == cell.config.method else cell.predictor)
    part: Part = "test" if facts.config.held_out == 0 else "held-out"
    with open_evaluation(
        facts,
        context.device,
        detectors=cell.detectors,
        part=part,
        root=context.root,
        keep_outputs=context.keep_outputs,
        progress=context.progress,
        warn=context.warn,
    ) as evaluation:
        rows = evaluation.evaluate(cell.tasks, cell.foreign, cell.epsilons)
        points = {None: lambda *_: [], "distributions": distributions, "embedding": embedding}[cell.figure]
        return CellResult(rows, points(evaluation, evaluation.sources, cell.foreign))
