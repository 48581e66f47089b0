"""One cell of a study from data to results: train its run, or go on with it, then evaluate it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsui.evaluation.evaluate import open_evaluation
from dsui.evaluation.results import ResultRow
from dsui.evaluation.sources import Part
from dsui.evaluation.tasks import Progress
from dsui.experiments.figure_points import distributions, embedding
from dsui.experiments.grid import Cell
from dsui.runs.folder import CONFIG, WEIGHTS
from dsui.runs.images import held_out_images, read_split, training_images
from dsui.runs.model import run_facts
from dsui.training.distributed import World
from dsui.training.loop import Reporter, fit
from dsui.training.step import Mode


class Outcome(NamedTuple):
    """Results rows, and what a figure needs beside them."""

    rows: list[ResultRow]
    points: list[dict[str, Any]]


@dataclass(frozen=True)
class Conditions:
    """Under which cells run: where data lie, on which device, whether outputs stay, who is told, how steps run."""

    root: Path | None
    device: torch.device
    keep_outputs: bool
    reporter: Reporter
    images: Progress = lambda _name, _done, _total: None
    warn: Callable[[str], None] = lambda _sentence: None
    mode: Mode | None = None


def train(cell: Cell, run: Path, conditions: Conditions) -> None:
    """Up to the run's weights, from its last checkpoint where it has one; nothing where it is trained already."""
    if (run / WEIGHTS).exists():
        return
    config = cell.config
    whole = read_split(config, config.data, "train", conditions.root)
    images = training_images(config, whole)
    held_out = None if config.held_out == 0 else held_out_images(config, whole)
    outliers = None if config.outliers is None else read_split(config, config.outliers, "train", conditions.root)
    torch.backends.cudnn.benchmark = True
    begun = (run / CONFIG).exists()
    fit(
        config,
        images,
        run,
        conditions.device,
        World(),
        conditions.reporter,
        resume=begun,
        mode=conditions.mode,
        outliers=outliers,
        held_out=held_out,
    )


def evaluate(cell: Cell, run: Path, conditions: Conditions) -> Outcome:
    """On the test split; where the run held images out, on those instead, so that a selection reads no test set."""
    facts = run_facts(run, None if cell.predictor == cell.config.method else cell.predictor)
    part: Part = "test" if facts.config.held_out == 0 else "held-out"
    with open_evaluation(
        facts,
        conditions.device,
        detectors=cell.detectors,
        part=part,
        root=conditions.root,
        keep_outputs=conditions.keep_outputs,
        progress=conditions.images,
        warn=conditions.warn,
    ) as evaluation:
        rows = evaluation.evaluate(cell.tasks, cell.foreign, cell.epsilons)
        points = {None: lambda *_: [], "distributions": distributions, "embedding": embedding}[cell.figure]
        return Outcome(rows, points(evaluation, evaluation.sources, cell.foreign))
