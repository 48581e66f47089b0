"""One training of the transfer study: a method on the features of some photographs, evaluated to results rows."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from dsui.data.feature_file import FeatureFile, classes_text
from dsui.data.features import usual_batch
from dsui.data.registry import load
from dsui.evaluation.evaluate import evaluate
from dsui.evaluation.results import ResultRow
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter
from studies.transfer_draws import PHOTOGRAPHS, Draw

KEPT = ("max_probability", "uncertainty", "foreignness", "energy", "density_energy", "log_density", "max_logit")
"""The scores whose rows are written, beside those of detectors."""


NAME = "tiny-imagenet draws"
"""What rows call the data of the draws."""


class Task(NamedTuple):
    """Features to train and to test on, and foreign ones by name, all as files in one folder."""

    name: str
    number: int
    known: Path
    foreign: Mapping[str, Path]


def write_known(path: Path, features: Tensor, labels: Tensor, for_test: Tensor, classes: Sequence[str]) -> Path:
    """A file of features [N, M] with labels [N], and which of them are for test."""
    tensors = {"features": features.float(), "labels": labels.long(), "split": for_test.to(torch.uint8)}
    save_file(
        {name: each.contiguous() for name, each in tensors.items()}, path, metadata={"classes": classes_text(classes)}
    )
    return path


def write_foreign(path: Path, features: Tensor) -> Path:
    save_file({"features": features.float().contiguous()}, path)
    return path


def task_of(draw: Draw, share: FeatureFile, classes: Sequence[int], folder: Path, far: Mapping[str, Path]) -> Task:
    """The files of a draw. `share` has the features of `classes`, its labels in their order."""
    assert share.labels is not None
    assert share.split is not None
    rows, labels, for_test = [], [], []
    for label, number in enumerate(draw.known):
        own = share.labels == classes.index(number)
        training, validation = (own & ~share.split).nonzero().flatten(), (own & share.split).nonzero().flatten()
        chosen = torch.zeros(len(training), dtype=torch.bool)
        chosen[draw.photographs(number, len(training), PHOTOGRAPHS)] = True
        rows += [training, validation]
        for_test += [~chosen, torch.ones(len(validation), dtype=torch.bool)]
        labels.append(torch.full((len(training) + len(validation),), label))
    names = [share.classes[classes.index(number)] for number in draw.known]
    known = write_known(
        folder / "known.safetensors", share.features[torch.cat(rows)], torch.cat(labels), torch.cat(for_test), names
    )
    other = torch.isin(share.labels, torch.tensor([classes.index(number) for number in draw.foreign]))
    foreign = write_foreign(folder / "foreign.safetensors", share.features[other])
    return Task(NAME, draw.number, known, {"other classes": foreign, **far})


def run(
    task: Task, method: str, settings: Mapping[str, object], detectors: Sequence[str] = (), seed: int = 0
) -> list[ResultRow]:
    """Train `method` with the recipe `features` and these settings, as `dsui train` does, and evaluate it."""
    data = f"features:{task.known}"
    train = load(data, "train")
    overrides, options = method_options(method, {"batch": usual_batch(len(train.labels)), **settings})
    config = RunConfig(
        data=data,
        backbone="features",
        method=method,
        seed=seed,
        size=1,
        channels=train.shape[0],
        recipe=load_recipe("features", data, overrides),
        options=options,
    )
    sets = {f"features:{path}": name for name, path in task.foreign.items()}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        fit(config, train, out, torch.device("cpu"), World(), SilentReporter())
        rows = evaluate(
            out, ["misclassification", "ood"], list(sets), device="cpu", detectors=detectors, keep_outputs=False
        )
    kept = (*KEPT, *(name.replace("-", "_") for name in detectors), "prediction")
    return [_named(row, task, sets) for row in rows if row.score in kept]


def _named(row: ResultRow, task: Task, sets: Mapping[str, str]) -> ResultRow:
    foreign = sets[str(row.foreign)] if row.foreign is not None else None
    return replace(row, run=run_name(task, row.method), data=task.name, foreign=foreign, seed=task.number)


def run_name(task: Task, method: str) -> str:
    return "-".join([*task.name.split(), *method.split(), str(task.number)])
