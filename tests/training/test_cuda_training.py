"""What only a GPU can show: captured and compiled steps, resuming to the bit, and a batch too large for the memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dsui.data.dataset import MemorySet
from dsui.errors import DsuiError
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.memory import release
from dsui.training.reporter import SilentReporter
from dsui.training.step import Mode, own_stream
from dsui.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STEPS = 50
OTHER: dict[str, Any] = {"optimizer": "sgd", "peak_rate": 0.05, "sam": 0.05, "clip": 1.0, "average": "ema"}
COPIES: dict[str, Any] = {"doubles": "turns", "regmixup": 0.5, "sam": 0.05, "optimizer": "sgd", "peak_rate": 0.05}


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    with own_stream(torch.device("cuda", 0)):
        yield torch.device("cuda", 0)


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    yield
    torch.use_deterministic_algorithms(False)


def images(count: int = 4096) -> MemorySet:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (count,), generator=generator)
    patterns = torch.randint(0, 128, (10, 3, 32, 32), generator=generator, dtype=torch.uint8)
    noise = torch.randint(0, 128, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return MemorySet("cifar10", tuple("0123456789"), patterns[labels] + noise, labels)


def trainer_on(device: torch.device, mode: Mode, method: str = "dsui", **settings: Any) -> Trainer:
    recipe = load_recipe("paper", "cifar10", settings)
    return Trainer(
        RunConfig(data="cifar10", backbone="resnet18", method=method, seed=0, size=32, channels=3, recipe=recipe),
        images(),
        device,
        World(),
        mode=mode,
    )


def take_steps(trainer: Trainer, count: int) -> None:
    epoch = 0
    while trainer.step.steps_done < count:
        for _ in trainer.epoch_steps(epoch, 0):
            if trainer.step.steps_done == count:
                break
        epoch += 1
    torch.cuda.synchronize()


def everything(trainer: Trainer) -> dict[str, torch.Tensor]:
    averages = {} if trainer.average is None else trainer.average.state_dict()
    return {**trainer.method.state_dict(), **{f"average.{name}": value for name, value in averages.items()}}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(
    ("method", "settings"),
    [(name, {}) for name in ("dsui", "msp", "logitnorm", "rkl", "dpn", "sde-net", "bbb")]
    + [(name, {"epochs": 4}) for name in ("g-openmax", "c2ae", "gdosr")]  # both of their stages
    + [("dsui", OTHER), ("dsui", COPIES), ("msp", COPIES), ("rotpred", {"regmixup": 0.5})],
)
def test_eager_and_captured_steps_agree_to_the_bit(gpu: torch.device, method: str, settings: dict[str, Any]) -> None:
    eager, graph = (trainer_on(gpu, mode, method, bfloat16=False, **settings) for mode in ("eager", "graph"))
    take_steps(eager, STEPS)
    take_steps(graph, STEPS)
    ours, theirs = everything(graph), everything(eager)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert graph.step.meter.sums() == eager.step.meter.sums()


@pytest.fixture
def full_float32() -> Iterator[None]:
    """Without TF32, in which cuDNN runs float32 convolutions unless told otherwise: it keeps ten bits."""
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.usefixtures("full_float32")
@pytest.mark.parametrize("method", ["dsui", "msp", "logitnorm", "rkl", "dpn"])  # those without random numbers
def test_compiled_steps_agree_with_eager_ones(gpu: torch.device, method: str) -> None:
    eager, compiled = (trainer_on(gpu, mode, method, bfloat16=False, dropout=0.0) for mode in ("eager", "compiled"))
    sums = []
    for trainer in (eager, compiled):
        take_steps(trainer, 1)
        first = trainer.step.meter.sums()
        take_steps(trainer, STEPS)
        sums.append((first["loss"] / first["samples"], trainer.step.meter.sums()))
    assert sums[1][0] == pytest.approx(sums[0][0], rel=1e-5)
    means = [each["loss"] / each["samples"] for _, each in sums]
    assert means[1] == pytest.approx(means[0], rel=0.01)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("method", ["dsui", "sde-net"])
def test_a_resumed_run_reaches_the_same_bits(gpu: torch.device, method: str) -> None:
    whole, first, second = (trainer_on(gpu, "graph", method, average="ema") for _ in range(3))
    take_steps(whole, 24)
    take_steps(first, 9)
    second.load(first.state())
    for _ in second.epoch_steps(0, 9):
        pass
    for _ in second.epoch_steps(1, 0):
        if second.step.steps_done == 24:
            break
    torch.cuda.synchronize()
    ours, theirs = everything(second), everything(whole)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_a_batch_too_large_for_the_memory_names_one_that_fits(tmp_path: Path, gpu: torch.device) -> None:
    total = torch.cuda.get_device_properties(gpu).total_memory
    release()
    used = torch.cuda.memory_reserved(gpu)
    torch.cuda.set_per_process_memory_fraction((used + 3 * 2**30) / total, gpu)
    try:
        recipe = load_recipe("paper", "cifar10", {"batch": 4096})
        run = RunConfig(data="cifar10", backbone="resnet18", method="dsui", seed=0, size=32, channels=3, recipe=recipe)
        with pytest.raises(DsuiError, match=r"a batch of 4096 does not fit .* a batch of (2048|1024|512|256) fits"):
            fit(run, images(), tmp_path / "run", gpu, World(), SilentReporter())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, gpu)
    assert os.path.exists(tmp_path / "run" / "config.yaml")
