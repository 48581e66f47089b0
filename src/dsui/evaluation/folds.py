"""Predictions for training images by models that did not see them: each of K models is trained without one fold.

Folds hold an equal share of every class. An image that is alone in its class is never left out, so it gets none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from dsui.data.dataset import ImageSet, subset
from dsui.errors import DsuiError
from dsui.progress import Progress
from dsui.runs.config import RunConfig
from dsui.runs.model import forward
from dsui.training.distributed import World
from dsui.training.step import own_stream
from dsui.training.trainer import Trainer

NONE = -1
"""The fold of an image that is never left out."""
REGULARISATION = 0.01
"""C of the logistic regressions, on features of deviation one: they should not learn single labels by heart."""
STEPS = 200
"""Of their optimizer at most."""

FoldTrainer = Callable[[Tensor, Tensor], Tensor]
"""From the indices to train on and those left out to log-probabilities [left out, C] of the latter."""


def folds_of(labels: Tensor, count: int, seed: int) -> Tensor:
    """[N] from 0 to `count` - 1, or NONE."""
    generator = torch.Generator().manual_seed(seed)
    folds = torch.full((len(labels),), NONE)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        if len(members) > 1:
            folds[members[torch.randperm(len(members), generator=generator)]] = torch.arange(len(members)) % count
    return folds


def out_of_fold(folds: Tensor, classes: int, predict: FoldTrainer) -> Tensor:
    """[N, C] log-probabilities in float64; NaN for images that are never left out."""
    found = torch.full((len(folds), classes), torch.nan, dtype=torch.float64)
    for fold in folds[folds != NONE].unique().tolist():
        left_out = (folds == fold).nonzero().flatten()
        found[left_out] = predict((folds != fold).nonzero().flatten(), left_out).double().cpu()
        if not bool(found[left_out].isfinite().all()):
            raise DsuiError("a model that was trained without a fold diverged; train the run with a lower rate.")
    return found


def by_regression(features: Tensor, labels: Tensor, classes: int) -> FoldTrainer:
    """Logistic regression on features [N, M], which are computed already."""
    values = features.double().numpy()

    def predict(trained: Tensor, left_out: Tensor) -> Tensor:
        scaler = StandardScaler().fit(values[trained.numpy()])
        model = LogisticRegression(C=REGULARISATION, max_iter=STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(scaler.transform(values[trained.numpy()]), labels[trained].numpy())
        found = torch.full((len(left_out), classes), -torch.inf, dtype=torch.float64)
        known = torch.from_numpy(model.classes_)
        found[:, known] = torch.from_numpy(model.predict_log_proba(scaler.transform(values[left_out.numpy()])))
        return found.clamp(min=torch.finfo(torch.float64).min)

    return predict


def by_training_again(
    config: RunConfig, images: ImageSet, outliers: ImageSet | None, device: torch.device, progress: Progress
) -> FoldTrainer:
    """The run's own method and recipe, to the last epoch."""
    config = replace(config, held_out=0.0, recipe=replace(config.recipe, patience=0))
    done = 0

    def predict(trained: Tensor, left_out: Tensor) -> Tensor:
        nonlocal done
        part = subset(images, trained, images.name)
        with own_stream(device), torch.random.fork_rng([]):
            trainer = Trainer(config, part, device, World(), outliers=outliers)
            for epoch in range(config.recipe.epochs):
                for _ in trainer.epoch_steps(epoch, 0):
                    pass
                trainer.end_epoch(epoch)
                done += 1
                progress("epochs of models without a fold", done, None)
            trainer.finish()
            rest = trainer.as_trained(subset(images, left_out, images.name))
            return torch.cat(
                [
                    forward(trainer.method, trainer.transform, rest.read(block).to(device))
                    .logits.double()
                    .log_softmax(1)
                    for block in torch.arange(len(left_out)).split(config.recipe.batch)
                ]
            )

    return predict
