"""Methods whose parts train one after another: what moves when, resuming, compiled steps, two processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.training.distributed import World, joined
from dsui.training.schedule import rates
from dsui.training.trainer import Trainer
from tests.support import forked
from tests.support.on_digits import CPU, images
from tests.support.plain_loss import FIRST_STEP, plain_loss
from tests.training.test_distributed import free_port

IMAGES = 64
EPOCHS, SECOND = 4, 2
"""The second stage of all three begins in the middle of four epochs."""
STAGES = {
    "c2ae": ({"network", "output"}, {"decoder", "gain", "shift"}),
    "gdosr": ({"auto_encoder"}, {"network", "output", "transformation"}),
    "g-openmax": ({"network", "output", "generator", "discriminator"}, {"network", "output"}),
}
"""The parts that learn in each stage."""
METHODS = pytest.mark.parametrize("method", STAGES)


def trainer_for(method: str, world: World | None = None, **settings: object) -> Trainer:
    recipe = load_recipe("demo", "digits", {"epochs": EPOCHS, "batch": IMAGES // 2, **settings})
    run = RunConfig(data="digits", backbone="small", method=method, seed=0, size=8, channels=1, recipe=recipe)
    whole = images("train", 0)
    few = MemorySet("digits", whole.classes, whole.images[:IMAGES], whole.labels[:IMAGES])
    return Trainer(run, few, CPU, world or World())


def take(trainer: Trainer, epoch: int, start: int = 0, stop: int | None = None) -> None:
    for done, _ in enumerate(trainer.epoch_steps(epoch, start), start=start + 1):
        if done == stop:
            return
    trainer.end_epoch(epoch)


def state(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.method.state_dict().items()}


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


@METHODS
def test_each_stage_moves_its_own_parts_and_what_is_estimated_comes_last(method: str) -> None:
    trainer = trainer_for(method)
    for first, parts in zip((0, SECOND), STAGES[method], strict=True):
        for epoch in (first, first + 1):
            before = state(trainer)
            take(trainer, epoch)
            assert changed(before, state(trainer)) == parts
    classifies = ({"network"} <= parts for parts in STAGES[method])
    assert ("hits" in trainer.step.meter.sums()) == list(classifies)[1]  # otherwise the log shows no accuracy
    before = state(trainer)
    trainer.finish()
    expected = {"c2ae": {"threshold"}, "gdosr": set(), "g-openmax": {"means", "least", "shape", "scale"}}[method]
    assert changed(before, state(trainer)) == expected


@METHODS
def test_every_stage_has_the_whole_schedule(method: str) -> None:
    trainer = trainer_for(method)
    stage = rates(load_recipe("demo", "digits", {"epochs": SECOND, "rate_warm_up": 0}), trainer.steps_per_epoch)
    half = rates(trainer.recipe, trainer.steps_per_epoch, (0, SECOND))
    assert trainer.method.schedule_starts() == (0, SECOND)
    assert torch.equal(trainer.step.rates, half)
    torch.testing.assert_close(half, torch.cat([stage, stage]), rtol=1e-12, atol=0)  # float64


@METHODS
@pytest.mark.parametrize("stopped", [1, SECOND])
def test_a_run_stopped_in_any_stage_resumes_to_the_same_bits(method: str, stopped: int) -> None:
    whole, first, second = (trainer_for(method, average="ema") for _ in range(3))
    for epoch in range(EPOCHS):
        take(whole, epoch)
    for epoch in range(stopped):
        take(first, epoch)
    take(first, stopped, stop=1)
    second.load(first.state())
    take(second, stopped, start=1)
    for epoch in range(stopped + 1, EPOCHS):
        take(second, epoch)
    for trainer in (whole, second):
        trainer.finish()
    ours, theirs = state(second), state(whole)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@METHODS
@pytest.mark.parametrize("phase", [0, 1])
def test_every_update_is_one_graph_that_never_asks_for_a_value(method: str, phase: int) -> None:
    trainer = trainer_for(method)
    built, labels = trainer.method.train(), torch.arange(16) % 10
    batch = trainer.transform.plain(images("train", 0).images[:16])
    built.phase = phase
    for number, turn in enumerate(built.turns()):
        if turn.phase in (None, phase):
            built.turn = number
            module, found = plain_loss(built), []
            torch.compiler.reset()  # other tests compile the same function, which may be done only so often
            # fullgraph refuses what reads a value back from the device, as a CUDA graph would
            for run in (module, torch.compile(module, fullgraph=True, backend="eager")):
                torch.manual_seed(0)
                found.append(run(batch, labels, FIRST_STEP)[0].detach())
            torch.testing.assert_close(found[1], found[0])


def process(rank: int, port: int, out: str) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2"
    )
    torch.set_num_threads(1)
    with joined("cpu") as world:
        found = {method: whole_run(method, world) for method in STAGES}
        torch.save(found, f"{out}/{rank}.pt")


def whole_run(method: str, world: World) -> dict[str, Tensor]:
    trainer = trainer_for(method, world, epochs=2)
    before = state(trainer)
    for epoch in range(2):
        take(trainer, epoch)
    trainer.finish()
    after = state(trainer)
    moved = set.union(*STAGES[method])
    assert moved <= changed(before, after)
    return after


def test_two_processes_train_every_stage_and_end_alike(tmp_path: Path) -> None:
    forked.two_processes(process, free_port(), str(tmp_path))
    ours, theirs = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert ours.keys() == theirs.keys() == STAGES.keys()
    for method, weights in ours.items():
        assert [name for name in weights if not torch.equal(weights[name], theirs[method][name])] == [], method
