"""How long the training of a study will still take, estimated from the logs of its runs and from measured speeds.

The log of a run has the seconds of each epoch. Divided by the images in an epoch and by what an image costs
(`dsui.experiments.speeds.work_of`) they give a rate. For another run the rate is multiplied by its own cost, its images
and the epochs that are left. Rates come from runs with the same data, backbone and
method; if there are none, from any method with the same data and backbone; if there are none, from the nearest of the
measured speeds (`dsui.experiments.speeds`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import torch

from dsui.data.dataset import MemorySet
from dsui.data.registry import FOLDER, dataset_info
from dsui.data.splits import class_split
from dsui.errors import DataError
from dsui.experiments.speeds import Machine, Speed, nearest, work_of
from dsui.runs.config import RunConfig
from dsui.runs.folder import LOG, STATE, WEIGHTS
from dsui.runs.log import read_log

USUAL_OTHER_SECONDS = 30.0
"""Start, compilation and evaluation of a run where nothing was measured: on an H200 compilation takes half a minute."""


class RunProgress(NamedTuple):
    """How far a run is: the epochs that are done, and the step at the end of the last one."""

    trained: bool
    epochs: int
    step: int
    steps: int | None
    """Steps of the whole run; None before the first epoch is logged."""


class Rate(NamedTuple):
    data: str
    backbone: str
    method: str
    seconds: float
    """Per image and epoch, of an image that passes the network once."""
    images: int
    """In an epoch."""


class Estimate(NamedTuple):
    """Seconds that a run still takes: its training, and its start and evaluation. `of` names the device whose speed
    this is, where the run's own was never measured."""

    training: float
    other: float
    of: str | None = None

    @property
    def seconds(self) -> float:
        return self.training + self.other


def run_progress(run: Path, config: RunConfig) -> RunProgress | None:
    """None for a run without a checkpoint."""
    trained = (run / WEIGHTS).exists()
    if not trained and not (run / STATE).exists():
        return None
    rows = _read_log(run)
    if not rows:
        return RunProgress(trained, 0, 0, None)
    epochs, step = rows[-1]["epoch"] + 1, rows[-1]["step"]
    return RunProgress(trained, epochs, step, step * config.recipe.epochs // epochs)


def measure_rates(runs: Iterable[tuple[Path, RunConfig]]) -> list[Rate]:
    """The rate of every run that has logged an epoch, from its median epoch, since the first one is slower."""
    rates = []
    for run, config in runs:
        if rows := _read_log(run):
            images = _images_per_epoch(rows, config)
            seconds = median(row["seconds"] for row in rows) / images / work_of(config)
            rates.append(Rate(config.data, config.backbone, config.method, seconds, images))
    return rates


def images_per_second(run: Path, config: RunConfig) -> float | None:
    """Of the median epoch; None before the first is logged."""
    rows = _read_log(run)
    seconds = median(row["seconds"] for row in rows) if rows else 0.0
    return _images_per_epoch(rows, config) / seconds if seconds > 0 else None


def logged_seconds(run: Path) -> float:
    """The seconds of all epochs together."""
    return math.fsum(row["seconds"] for row in _read_log(run))


def remaining(
    config: RunConfig,
    progress: RunProgress | None,
    rates: Iterable[Rate],
    machine: Machine,
    speeds: Sequence[Speed],
) -> Estimate | None:
    """How long a run still takes while `machine.together` of them share the device; None if it cannot be told."""
    measured = nearest(config, machine, speeds)
    other = USUAL_OTHER_SECONDS
    if measured is not None and measured.other_seconds is not None:
        other = measured.other_seconds
    if progress is not None and progress.trained:
        return Estimate(0.0, other)
    epochs = config.recipe.epochs - (progress.epochs if progress else 0)
    alike = [rate for rate in rates if (rate.data, rate.backbone) == (config.data, config.backbone)]
    same = [rate for rate in alike if rate.method == config.method] or alike
    images = count_training_images(config) or (same[0].images if same else None)
    if same and images is not None:
        return Estimate(mean(rate.seconds for rate in same) * work_of(config) * images * epochs, other)
    if measured is None or images is None:
        return None
    training = images * epochs * machine.together / measured.images_per_device(config)
    return Estimate(training, other, None if measured.device == machine.device else measured.device)


def count_training_images(config: RunConfig) -> int | None:
    """The training images of a run, without reading them, if all classes are equally large; None for folder:PATH."""
    if config.data.startswith(FOLDER):
        return None
    entry = dataset_info(config.data)
    share = 1 - config.held_out
    if config.known is not None:
        share *= _count_known_classes(config, entry.classes) / entry.classes
    return round(entry.splits["train"].images * share)


def _count_known_classes(config: RunConfig, classes: int) -> int:
    assert config.known is not None
    empty = torch.zeros(0, 1, 1, 1, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)
    numbered = MemorySet(config.data, tuple(map(str, range(classes))), *empty)
    try:
        return len(class_split(config.known, numbered).known)
    except DataError:  # the names of classes, which only the data set itself has
        return len(config.known.split(","))


def _images_per_epoch(rows: Sequence[dict[str, Any]], config: RunConfig) -> int:
    return int(rows[-1]["step"] // (rows[-1]["epoch"] + 1) * config.recipe.batch)


def _read_log(run: Path) -> list[dict[str, Any]]:
    """The valid rows of a log. Another process may be writing to it, and an estimate must not stop a study."""
    return [row for row in read_log(run / LOG).rows if _is_epoch_row(row)]


def _is_epoch_row(row: dict[str, Any]) -> bool:
    match row:
        case {"epoch": int(epoch), "step": int(step), "seconds": int() | float() as seconds}:
            return 0 <= epoch < step and math.isfinite(seconds)
    return False
