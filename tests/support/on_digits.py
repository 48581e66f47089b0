"""Any method, trained for seconds on 256 digits by the real trainer, and its outputs."""

from __future__ import annotations

from functools import cache
from statistics import mean
from typing import NamedTuple

import torch
from torch import Tensor

from dsui import scores
from dsui.data.dataset import MemorySet
from dsui.data.digits import digits, split
from dsui.data.noise import uniform_noise
from dsui.evaluation.metrics import auroc
from dsui.methods.method import Method
from dsui.outputs import Outputs
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.optimizer import make_optimizer, set_rate
from dsui.training.trainer import Trainer

CPU = torch.device("cpu")
TRAIN_IMAGES, NOISE_IMAGES = 256, 1500


class TrainedRun(NamedTuple):
    """A trained method and its outputs for the test digits, whose labels they hold, and for noise."""

    trainer: Trainer
    test: Outputs
    noise: Outputs


def images(part: str, seed: int) -> MemorySet:
    """256 training digits ("train") or all others ("test")."""
    pixels, labels = digits()
    chosen = dict(zip(("train", "test"), split(labels, TRAIN_IMAGES, seed), strict=True))[part]
    eight_bit = (pixels[chosen] * 255).round().to(torch.uint8)
    return MemorySet("digits", tuple("0123456789"), eight_bit, labels[chosen])


def trainer_for(method: str, seed: int = 0, outliers: MemorySet | None = None, **settings: object) -> Trainer:
    """An untrained trainer; settings are those of `--set`, of the recipe or the method."""
    overrides, options = method_options(method, {"epochs": 40, **settings})
    recipe = load_recipe("demo", "digits", overrides)
    named = None if outliers is None else outliers.name
    run = RunConfig(
        data="digits",
        backbone="small",
        method=method,
        seed=seed,
        size=8,
        channels=1,
        recipe=recipe,
        options=options,
        outliers=named,
    )
    return Trainer(run, images("train", seed), CPU, World(), outliers=outliers)


def train(trainer: Trainer) -> None:
    for epoch in range(trainer.recipe.epochs):
        for _ in trainer.epoch_steps(epoch, 0):
            pass
        trainer.end_epoch(epoch)
    trainer.finish()


@torch.no_grad()
def predict(trainer: Trainer, pixels: Tensor, labels: Tensor | None = None) -> Outputs:
    torch.manual_seed(0)
    outputs = trainer.method.predict(trainer.transform.plain(pixels))
    return Outputs.of({**outputs.tensors(), **({} if labels is None else {"labels": labels})})


def train_new(method: str, seed: int, outliers: MemorySet | None = None, **settings: object) -> TrainedRun:
    trainer = trainer_for(method, seed, outliers, **settings)
    train(trainer)
    test = images("test", seed)
    noise = (uniform_noise(NOISE_IMAGES, (1, 8, 8), 0) * 255).round().to(torch.uint8)
    return TrainedRun(trainer, predict(trainer, test.images, test.labels), predict(trainer, noise))


def changed_by_update(method: Method, turn: int, batch: Tensor) -> set[str]:
    """The parts of the state that one update of a turn changes, with the labels 0, 1, 2 and so on."""
    recipe = load_recipe("demo", "digits")
    before = {name: value.clone() for name, value in method.state_dict().items()}
    optimizer = make_optimizer(method, method.turns()[turn], recipe, CPU)
    set_rate(optimizer, torch.tensor(1e-3))
    method.train().turn = turn
    method.zero_grad()
    method.loss(method(batch), torch.arange(len(batch))).backward()
    optimizer.step()
    method.turn = 0
    return {name for name, value in method.state_dict().items() if not torch.equal(value, before[name])}


def errors(run: TrainedRun) -> Tensor:
    assert run.test.labels is not None
    return run.test.predictions != run.test.labels


def accuracy(run: TrainedRun) -> float:
    return 1 - errors(run).double().mean().item()


def misclassification(run: TrainedRun) -> float:
    """AUROC of Max.P. for the model's own errors."""
    return auroc(scores.max_probability(run.test.logits), errors(run))


def noise(run: TrainedRun, score: str = "max_probability") -> float:
    """AUROC of a score of the logits, of the class scores, or of the method's own, for noise against test digits."""

    def of(part: Outputs) -> Tensor:
        if score == "density_energy":
            assert part.class_scores is not None
            return scores.energy(part.class_scores)
        return part.own[score] if score in part.own else getattr(scores, score)(part.logits)

    parts = [of(part) for part in run[1:]]
    return auroc(torch.cat(parts), torch.arange(len(parts[0]) + len(parts[1])) >= len(parts[0]))


@cache
def one_seed(method: str, seed: int, **settings: object) -> TrainedRun:
    return train_new(method, seed, None, **settings)


def three_seeds(method: str, **settings: object) -> tuple[TrainedRun, ...]:
    return tuple(one_seed(method, seed, **settings) for seed in range(3))


def means(runs: tuple[TrainedRun, ...]) -> tuple[float, float, float]:
    """Accuracy, misclassification AUROC and noise AUROC by Max.P., over the runs."""
    return mean(map(accuracy, runs)), mean(map(misclassification, runs)), mean(map(noise, runs))
