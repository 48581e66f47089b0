"""A frozen backbone computes the features of each image once, and training is that on a file of these features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dsui.backbones.own import as_backbone
from dsui.backbones.registry import provided_backbone
from dsui.data.dataset import MemorySet
from dsui.errors import DsuiError
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter
from tests.support.tiny_networks import SIDE, Counted

SHAPE = (3, SIDE, SIDE)


def drawn(count: int, seed: int) -> MemorySet:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 200, (count, *SHAPE), dtype=torch.uint8, generator=generator)
    pixels[torch.arange(count), labels] += 50
    return MemorySet("drawn", ("a", "b", "c"), pixels, labels)


def config(backbone: str, channels: int, size: int, **settings: object) -> RunConfig:
    overrides, options = method_options("dsui", {"epochs": 4, "batch": 16, **settings})
    return RunConfig(
        data="drawn",
        backbone=backbone,
        method="dsui",
        seed=0,
        size=size,
        channels=channels,
        recipe=load_recipe("features", "drawn", overrides),
        options=options,
        held_out=0.25,
    )


class Listening(SilentReporter):
    def __init__(self) -> None:
        self.prepared: list[tuple[str, int, int | None]] = []

    def preparing(self, what: str, done: int, total: int | None) -> None:
        self.prepared.append((what, done, total))


def epochs(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_each_image_is_seen_once_and_the_run_is_that_on_its_features(tmp_path: Path) -> None:
    network = as_backbone(Counted(), SHAPE)
    module = Counted().eval()
    train, held_out, listening = drawn(48, 0), drawn(30, 1), Listening()
    device, world = torch.device("cpu"), World()
    seen: list[int] = []
    with provided_backbone("own.net:make", network), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counted, "forward", _counting(Counted.forward, seen))
        frozen = config("own.net:make", 3, SIDE, freeze_until="head")
        fit(frozen, train, tmp_path / "frozen", device, world, listening, held_out=held_out)
    assert sum(seen) == 48 + 30
    assert listening.prepared[-1][1:] == (30, 30)

    def features(images: MemorySet) -> MemorySet:
        inputs = (images.images.float() / 255 - 0.5) / 0.5
        with torch.no_grad():
            vectors = module(inputs)[:, :, None, None]
        return MemorySet(images.name, images.classes, vectors, images.labels)

    on_features = config("features", 6, 1)
    fit(on_features, features(train), tmp_path / "plain", device, world, SilentReporter(), held_out=features(held_out))
    for ours, theirs in zip(epochs(tmp_path / "frozen"), epochs(tmp_path / "plain"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)  # float32 sums of batches of 128 and of 48
        assert ours.get("held_out_accuracy") == theirs.get("held_out_accuracy")
    ours, theirs = (load_file(tmp_path / run / "model.safetensors") for run in ("frozen", "plain"))
    assert torch.allclose(ours["head.means"], theirs["head.means"], atol=1e-3)


def _counting(forward: Any, seen: list[int]) -> Any:
    def counted(self: nn.Module, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        found: torch.Tensor = forward(self, images)
        return found

    return counted


def test_features_that_are_no_numbers_are_told_and_leave_nothing(tmp_path: Path) -> None:
    broken = Counted()
    network = as_backbone(broken, SHAPE)
    with torch.no_grad():
        next(network.parameters()).fill_(float("nan"))
    with (
        provided_backbone("own.net:make", network),
        pytest.raises(DsuiError, match="the backbone gives NaN or infinity"),
    ):
        fit(
            config("own.net:make", 3, SIDE, freeze_until="head"),
            drawn(48, 0),
            tmp_path / "run",
            torch.device("cpu"),
            World(),
            SilentReporter(),
        )
    assert not (tmp_path / "run").exists()
