"""Modules of a user's own as backbones."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

from dsui.backbones import registry
from dsui.backbones.adapt import AdaptedBackbone
from dsui.backbones.own import OwnBackbone, as_backbone
from dsui.backbones.small import SmallNet
from dsui.methods import registry as methods
from dsui.runs.recipe_file import load_recipe

SHAPE = (1, 8, 8)
IMAGES = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))


def features() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_module_that_gives_features_is_taken_as_it_is() -> None:
    module = features()
    backbone = as_backbone(module, SHAPE)
    assert (type(backbone), backbone.out_features) == (OwnBackbone, 6)
    assert torch.equal(backbone.eval()(IMAGES), module.eval()(IMAGES))


def test_the_linear_layer_a_module_ends_in_gives_way() -> None:
    module = nn.Sequential(features(), nn.Linear(6, 1000))
    backbone = as_backbone(module, SHAPE)
    assert (type(backbone), backbone.out_features) == (AdaptedBackbone, 6)
    assert torch.equal(backbone.eval()(IMAGES), module[0].eval()(IMAGES))


def test_a_module_that_states_its_features_keeps_its_last_layer() -> None:
    module = nn.Sequential(features(), nn.Linear(6, 20))
    module.out_features = 20  # type: ignore[assignment]
    assert as_backbone(module, SHAPE).out_features == 20
    assert as_backbone(SmallNet(width=4), SHAPE).out_features == 16


def test_the_module_stays_the_users() -> None:
    module = features()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(0)
    draw = torch.rand(1)
    torch.manual_seed(0)
    backbone = as_backbone(module, SHAPE)
    assert torch.equal(torch.rand(1), draw)
    for parameter in backbone.parameters():
        parameter.data.fill_(7)
    assert module.training
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


class Positions(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Conv2d(3, 6, 3), r"Conv2d fails on images of \[1, 8, 8\] \(channels, height, width\)"),
        (Positions(), "has no torch.nn.Linear; let it return"),
        ("resnet", "the backbone is str; give a name or a torch.nn.Module"),
    ],
)
def test_what_cannot_be_a_backbone_is_told(module: nn.Module, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        as_backbone(module, SHAPE)


def test_features_that_were_stated_wrongly_are_told() -> None:
    module = features()
    module.out_features = 7  # type: ignore[assignment]
    with pytest.raises(ValueError, match="Sequential states 7 out_features and gives 6 features"):
        as_backbone(module, SHAPE)
    flat = Positions()
    flat.out_features = 64  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"states 64 out_features and gives no features \[B, M\]"):
        as_backbone(flat, SHAPE)


def test_an_own_backbone_is_built_by_its_name_with_its_weights_until_the_context_ends() -> None:
    backbone = as_backbone(features(), SHAPE)
    with registry.own_backbone(backbone, "Net") as name:
        assert name == "own:Net"
        first, second = registry.build(name), registry.build(name)
        assert first is not second is not backbone
        for built in (first, second):
            assert all(torch.equal(a, b) for a, b in zip(built.parameters(), backbone.parameters(), strict=True))
        with pytest.raises(Exception, match="sde-net cannot be built on own:Net; choose --backbone small or resnet18"):
            methods.build("sde-net", name, 1, 10, load_recipe("demo", "digits"))
    with pytest.raises(ValueError, match=r"own module, Net; name the function that makes it, .* or load it in Python"):
        registry.build("own:Net")
    assert registry.names() == ("small", "resnet18", "vgg16")


def test_two_threads_do_not_see_each_others_own_backbone() -> None:
    widths: dict[int, int] = {}
    meeting = threading.Barrier(2)

    def build_own(width: int) -> None:
        with registry.own_backbone(as_backbone(SmallNet(width=width), SHAPE), "Net") as name:
            meeting.wait(10)
            widths[width] = registry.build(name).out_features
            meeting.wait(10)

    threads = [threading.Thread(target=build_own, args=(width,)) for width in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert widths == {2: 8, 3: 12}
