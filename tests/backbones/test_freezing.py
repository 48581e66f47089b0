"""Frozen backbones: what moves in training, what does not, and how deep in a network a parameter lies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dsui.backbones.adapt import adapt
from dsui.backbones.freezing import FrozenBackbone, depths, frozen_until
from dsui.backbones.named import load_backbone
from dsui.backbones.own import as_backbone
from dsui.backbones.registry import HEAD
from dsui.backbones.resnet import ResNet18
from tests.support.tiny_networks import SIDE, Counted, tiny_vit

SHAPE = (3, SIDE, SIDE)
IMAGES = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))


def trained(model: nn.Module) -> set[str]:
    return {name for name, each in model.named_parameters() if each.requires_grad}


def test_a_frozen_backbone_keeps_weights_and_statistics_and_standardises_its_features() -> None:
    backbone = frozen_until(as_backbone(Counted(), SHAPE), HEAD)
    assert isinstance(backbone, FrozenBackbone)
    before = {name: each.clone() for name, each in backbone.model.state_dict().items()}
    features = backbone.train()(IMAGES)
    plain = Counted().eval()(IMAGES)
    expected = (plain - plain.mean(0)) / (plain.var(0, unbiased=False) + 1e-5).sqrt()
    assert torch.allclose(features, expected, atol=1e-5)  # float32
    assert trained(backbone) == set()
    assert all(torch.equal(each, before[name]) for name, each in backbone.model.state_dict().items())
    of_features = backbone(plain[:, :, None, None].detach())
    assert torch.allclose(of_features, expected, atol=1e-5)


def test_a_backbone_is_frozen_up_to_a_layer_with_the_parameters_around_it(tmp_path: Path) -> None:
    vit = load_backbone(f"hf:{tiny_vit(tmp_path)}").backbone
    partly = frozen_until(vit, "layers.1").train()
    names = {name for name, _ in partly.named_parameters()}
    still = {name for name in names if "embeddings" in name or ".layers.0." in name}
    assert still
    assert trained(partly) == names - still
    modes = {name: module.training for name, module in partly.named_modules()}
    assert not any(mode for name, mode in modes.items() if name.endswith("layers.0"))
    assert any(mode for name, mode in modes.items() if name.endswith("layers.1"))


class Rooted(nn.Module):
    """As transformers of timm: embeddings are the network's own parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, 8))
        self.embed = nn.Linear(3, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.out_features = 8

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(images.mean((2, 3))) + self.positions
        for block in self.blocks:
            hidden = hidden + block(hidden)
        normed: torch.Tensor = self.norm(hidden)
        return normed


def test_embeddings_beside_the_blocks_are_before_them() -> None:
    partly = frozen_until(as_backbone(Rooted(), SHAPE), "blocks.1")
    of_model = {name.rpartition("model.")[2] for name in trained(partly)}
    assert of_model == {f"{name}.{kind}" for name in ("blocks.1", "blocks.2", "norm") for kind in ("weight", "bias")}


def test_a_layer_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no layer 'layer9' to freeze until; it has blocks.0, blocks.1, blocks.2\."):
        frozen_until(as_backbone(Rooted(), SHAPE), "layer9")
    with pytest.raises(ValueError, match=r"it has model\.first, model\.norm, model\.last\."):
        frozen_until(as_backbone(Counted(), SHAPE), "fc")


def layers(model: nn.Module) -> dict[str, int]:
    """The depth of each module with parameters, by the end of its name."""
    return {name.rpartition(".")[0].removeprefix("model."): depth for name, depth in depths(model).items()}


def test_blocks_are_layers_and_what_lies_before_or_behind_them_is_one_each(tmp_path: Path) -> None:
    found = layers(as_backbone(Rooted(), SHAPE))
    assert found == {"model": 0, "embed": 0, "blocks.0": 1, "blocks.1": 2, "blocks.2": 3, "norm": 4}
    vit = depths(load_backbone(f"hf:{tiny_vit(tmp_path)}").backbone)
    assert {depth for name, depth in vit.items() if "embeddings" in name} == {0}
    assert [{depth for name, depth in vit.items() if f"layers.{n}." in name} for n in range(3)] == [{1}, {2}, {3}]
    assert {depth for name, depth in vit.items() if "layernorm.w" in name or "pooler" in name} == {4}


def test_layers_of_a_residual_network_are_its_blocks() -> None:
    found = depths(ResNet18())
    firsts = [
        next(depth for name, depth in found.items() if name.startswith(block)) for block in ("blocks.0.", "blocks.1.")
    ]
    assert firsts[1] == firsts[0] + 1
    assert max(found.values()) >= 8


def test_a_network_without_numbers_has_a_layer_for_each_module() -> None:
    assert layers(as_backbone(Counted(), SHAPE)) == {"first": 0, "norm": 1, "last": 2}


def test_adapted_networks_have_layers_too() -> None:
    backbone = adapt(nn.Sequential(Counted(), nn.Linear(6, 10)), SHAPE)
    assert set(depths(backbone).values()) == {0}  # all of it is module 0 of the sequence
