"""Short runs on the embedded digits with images held out, trained once for all tests that only read them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

from dsui.data.registry import load
from dsui.training.config import RunConfig
from dsui.training.distributed import World
from dsui.training.images import held_out_images, training_images
from dsui.training.loop import fit
from dsui.training.recipe_file import load_recipe, method_options

CPU = torch.device("cpu")


class Silent:
    def steps(self, done: int, total: int, figures: dict[str, float]) -> None: ...

    def epoch(self, row: dict[str, object]) -> None: ...


def digit_config(method: str = "dsui", held_out: float = 0.2, epochs: int = 2, **settings: object) -> RunConfig:
    overrides, options = method_options(method, {"epochs": epochs, **settings})
    recipe = load_recipe("demo", "digits", overrides)
    return RunConfig("digits", "small", method, 0, 8, 1, recipe, options, held_out=held_out)


def trained(out: Path, config: RunConfig, resume: bool = False) -> Path:
    whole = load("digits", "train")
    held_out = None if config.held_out == 0 else held_out_images(config, whole)
    fit(config, training_images(config, whole), out, CPU, World(), Silent(), resume, held_out=held_out)
    return out


@cache
def _shelf() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="deployed-digits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def run(method: str = "dsui", held_out: float = 0.2, epochs: int = 2, **settings: object) -> Path:
    """The folder of a trained run, which no test may change."""
    return trained(_shelf() / str(run.cache_info().misses), digit_config(method, held_out, epochs, **settings))
