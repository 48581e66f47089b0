"""Rates by layer: how far every parameter moves in one step, against the factors of the formula."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsui.backbones.freezing import depths
from dsui.backbones.named import load_backbone
from dsui.backbones.registry import provided_backbone
from dsui.data.dataset import MemorySet
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.trainer import Trainer
from tests.support.tiny_networks import SIDE, tiny_vit

IMAGES = MemorySet(
    "drawn",
    ("a", "b"),
    torch.randint(0, 256, (16, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)),
    torch.arange(16) % 2,
)


def moves(vit: Path, **settings: object) -> dict[str, float]:
    """How far each parameter moves in one step of plain gradient descent, by name; its gradient is the same for all
    settings, because nothing has moved before."""
    changes = {"optimizer": "sgd", "momentum": 0, "nesterov": False, "weight_decay": 0, "batch": 16, "epochs": 1}
    changes |= {"schedule": "cosine", "padding": 0, "flip": False, "average": "none", "clip": 0, "rate_warm_up": 0}
    overrides, options = method_options("dsui", {**changes, **settings})
    config = RunConfig(
        data="drawn",
        backbone="hf:tiny",
        method="dsui",
        seed=0,
        size=SIDE,
        channels=3,
        recipe=load_recipe("modern", "drawn", overrides),
        options=options,
    )
    with provided_backbone("hf:tiny", load_backbone(f"hf:{vit}").backbone):
        trainer = Trainer(config, IMAGES, torch.device("cpu"), World())
    before = {name: each.detach().clone() for name, each in trainer.method.named_parameters()}
    for _ in trainer.epoch_steps(0, 0):
        pass
    after = trainer.method.named_parameters()
    return {name: (each.detach() - before[name]).double().norm().item() for name, each in after}


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def plain(vit: Path) -> dict[str, float]:
    return moves(vit)


def depth_of(name: str, layers: dict[str, int]) -> int | None:
    """The layer of a parameter of the method, None for the head."""
    return layers.get(name.removeprefix("network.backbone.")) if name.startswith("network.backbone.") else None


def test_each_layer_moves_as_far_as_its_factor_says(vit: Path, plain: dict[str, float]) -> None:
    layers = depths(load_backbone(f"hf:{vit}").backbone)
    decayed = moves(vit, backbone_rate=0.5, layer_decay=0.25)
    last, compared = max(layers.values()), set()
    for name, far in plain.items():
        depth = depth_of(name, layers)
        factor = 1.0 if depth is None else 0.5 * 0.25 ** (last - depth)
        if far > 1e-4:  # a smaller step drowns in the rounding of float32 weights
            compared.add(depth)
            assert decayed[name] == pytest.approx(factor * far, rel=0.02), name
    assert compared == {None, *range(last + 1)}


def test_one_rate_for_the_head_and_one_for_the_rest(vit: Path, plain: dict[str, float]) -> None:
    slow = moves(vit, backbone_rate=0.1)
    for name, far in plain.items():
        factor = 0.1 if name.startswith("network.backbone.") else 1.0
        if far > 1e-4:
            assert slow[name] == pytest.approx(factor * far, rel=0.02), name


def test_layers_before_the_named_one_do_not_move_and_the_others_do(vit: Path, plain: dict[str, float]) -> None:
    partly = moves(vit, freeze_until="layers.1")
    found = {name.replace("network.backbone.model.", "network.backbone."): far for name, far in partly.items()}
    frozen = {name for name in found if "embeddings" in name or ".layers.0." in name}
    assert frozen
    for name, far in found.items():
        if name in frozen:
            assert far == 0, name
        else:
            assert far == pytest.approx(plain[name], rel=0.02), name


def test_a_frozen_backbone_does_not_move_and_the_head_does(vit: Path) -> None:
    found = moves(vit, freeze_until="head")
    assert all(
        (far == 0) == name.startswith("network.backbone.") for name, far in found.items() if "temperature" not in name
    )
