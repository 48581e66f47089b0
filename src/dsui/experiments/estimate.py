"""How long the training that a study still needs will take, from what its runs have logged.

A run's log has seconds for each epoch. Divided by its images an epoch they are a rate, which for another run is
multiplied with its own images and the epochs it still needs. Rates come from runs of the same data, backbone and
method, else from any method on the same data and backbone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import torch

from dsui.data.dataset import MemorySet
from dsui.data.registry import FOLDER, dataset_info
from dsui.data.splits import class_split
from dsui.errors import DataError
from dsui.report.run_data import read_log
from dsui.runs.config import RunConfig
from dsui.runs.folder import LOG, STATE, WEIGHTS


class RunProgress(NamedTuple):
    """How far a run is: epochs done, and its steps at the end of the last one."""

    trained: bool
    epochs: int
    step: int
    steps: int | None
    """Of the whole run, where its log tells."""


class Rate(NamedTuple):
    data: str
    backbone: str
    method: str
    seconds: float
    """For one image of one epoch."""
    images: int
    """Of an epoch."""


def progress(run: Path, config: RunConfig) -> RunProgress | None:
    """None for a run that has nothing to go on from."""
    trained = (run / WEIGHTS).exists()
    if not trained and not (run / STATE).exists():
        return None
    rows = _log(run)
    if not rows:
        return RunProgress(trained, 0, 0, None)
    epochs, step = rows[-1]["epoch"] + 1, rows[-1]["step"]
    return RunProgress(trained, epochs, step, step * config.recipe.epochs // epochs)


def rates(runs: Iterable[tuple[Path, RunConfig]]) -> list[Rate]:
    """Of every run that has logged an epoch; the median epoch, since the first one warms up."""
    found = []
    for run, config in runs:
        if rows := _log(run):
            images = rows[-1]["step"] // (rows[-1]["epoch"] + 1) * config.recipe.batch
            seconds = median(row["seconds"] for row in rows) / images
            found.append(Rate(config.data, config.backbone, config.method, seconds, images))
    return found


def remaining_seconds(config: RunConfig, done: RunProgress | None, known: Iterable[Rate]) -> float | None:
    """What a run still needs, or None where nothing like it has been measured."""
    if done is not None and done.trained:
        return 0.0
    alike = [rate for rate in known if (rate.data, rate.backbone) == (config.data, config.backbone)]
    same = [rate for rate in alike if rate.method == config.method] or alike
    if not same:
        return None
    images = training_count(config) or same[0].images
    epochs = config.recipe.epochs - (done.epochs if done else 0)
    return mean(rate.seconds for rate in same) * images * epochs


def training_count(config: RunConfig) -> int | None:
    """Training images of a run, without reading them, when every class has as many; None for one's own images."""
    if config.data.startswith(FOLDER):
        return None
    entry = dataset_info(config.data)
    share = 1 - config.held_out
    if config.known is not None:
        share *= _known_classes(config, entry.classes) / entry.classes
    return round(entry.splits["train"].images * share)


def _known_classes(config: RunConfig, classes: int) -> int:
    assert config.known is not None
    empty = torch.zeros(0, 1, 1, 1, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)
    numbered = MemorySet(config.data, tuple(map(str, range(classes))), *empty)
    try:
        return len(class_split(config.known, numbered).known)
    except DataError:  # classes by name, which only the data set itself knows
        return len(config.known.split(","))


def _log(run: Path) -> list[dict[str, Any]]:
    """The rows of a log that may be written to at this moment, without torn and damaged ones: an estimate stops no
    study."""
    return [row for row in read_log(run / LOG)[0] if _of_an_epoch(row)]


def _of_an_epoch(row: dict[str, Any]) -> bool:
    match row:
        case {"epoch": int(epoch), "step": int(step), "seconds": int() | float() as seconds}:
            return 0 <= epoch < step and math.isfinite(seconds)
    return False
