"""Files of features: those of the embedded digits, through a random layer that keeps them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dsui.data.registry import load
from dsui.runs.config import RunConfig
from dsui.runs.images import held_out_images, training_images
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter

WIDTH = 48


def digit_features(width: int = WIDTH) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features [1797, width] and labels."""
    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16
    weights = torch.randn(64, width, generator=torch.Generator().manual_seed(0)) / 8
    return torch.relu(pixels @ weights).numpy(), digits.target.astype(np.int64)


def written(folder: Path, rows: slice = slice(600), **parts: object) -> Path:
    """digits.npz with some rows, all of them of ten classes; `parts` replace arrays or add them."""
    features, labels = digit_features()
    path = folder / "digits.npz"
    arrays: dict[str, Any] = {"features": features[rows], "labels": labels[rows], **parts}
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


def foreign(folder: Path) -> Path:
    """foreign.npz: vectors without labels that are larger than those of digits."""
    drawn = np.random.default_rng(0).normal(size=(60, WIDTH)).astype(np.float32)
    np.savez(folder / "foreign.npz", features=np.abs(drawn))
    return folder / "foreign.npz"


def feature_config(file: Path, method: str = "dsui", held_out: float = 0.1, **settings: object) -> RunConfig:
    data = f"features:{file}"
    overrides, options = method_options(method, {"epochs": 3, "batch": 32, **settings})
    return RunConfig(
        data=data,
        backbone="features",
        method=method,
        seed=0,
        size=1,
        channels=load(data, "train").shape[0],
        recipe=load_recipe("features", data, overrides),
        options=options,
        held_out=held_out,
    )


def train(out: Path, config: RunConfig) -> Path:
    whole = load(config.data, "train")
    held_out = held_out_images(config, whole)
    fit(config, training_images(config, whole), out, torch.device("cpu"), World(), SilentReporter(), held_out=held_out)
    return out
