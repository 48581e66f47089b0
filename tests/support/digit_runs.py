"""Runs of two epochs on the embedded digits, trained once for all tests that only read them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

from dsui.data.registry import load
from dsui.evaluation.evaluate import open_evaluation
from dsui.evaluation.sources import Part
from dsui.evaluation.tasks import Evaluation
from dsui.runs.config import RunConfig
from dsui.runs.images import held_out_images, training_images
from dsui.runs.model import run_facts
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter

CPU = torch.device("cpu")
HELD_OUT = 0.2


def digit_config(
    method: str = "msp", seed: int = 0, known: str | None = None, held_out: float = 0.0, **settings: object
) -> RunConfig:
    overrides, options = method_options(method, {"epochs": 2, **settings})
    recipe = load_recipe("demo", "digits", overrides)
    return RunConfig(
        data="digits",
        backbone="small",
        method=method,
        seed=seed,
        size=8,
        channels=1,
        recipe=recipe,
        options=options,
        outliers=None,
        known=known,
        held_out=held_out,
    )


def train(out: Path, config: RunConfig, resume: bool = False) -> Path:
    whole = load("digits", "train")
    held_out = held_out_images(config, whole) if config.held_out else None
    fit(config, training_images(config, whole), out, CPU, World(), SilentReporter(), resume=resume, held_out=held_out)
    return out


@cache
def _shelf() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="digit-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def run(
    method: str = "msp", seed: int = 0, known: str | None = None, held_out: float = 0.0, **settings: object
) -> Path:
    """The folder of a trained run, which no test may change; copy it with `own_copy` to do so."""
    config = digit_config(method, seed, known, held_out, **settings)
    return train(_shelf() / str(run.cache_info().misses), config)


def calibrated() -> Path:
    """A run of DS-UI that held images out for its thresholds."""
    return run("dsui", held_out=HELD_OUT)


def own_copy(original: Path, to: Path) -> Path:
    return Path(shutil.copytree(original, to))


def evaluation(path: Path, part: Part = "test", method: str | None = None, **settings: object) -> Evaluation:
    """Without a cache on disk but the run's own."""
    return open_evaluation(run_facts(path, method), CPU, part=part, **settings)  # type: ignore[arg-type]
