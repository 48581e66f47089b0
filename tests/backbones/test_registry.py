from __future__ import annotations

import pytest

from dsui.backbones import registry
from dsui.backbones.backbone import Backbone
from dsui.backbones.resnet import ResNet18
from dsui.backbones.small import SmallNet
from dsui.backbones.vgg import VGG16


def test_names_are_those_of_the_contract() -> None:
    assert registry.names() == ("small", "resnet18", "vgg16")


@pytest.mark.parametrize(
    ("name", "kind", "features"),
    [
        ("small", SmallNet, 128),
        ("resnet18", ResNet18, 512),
        ("vgg16", VGG16, 512),
    ],
)
def test_name_builds_its_network_and_tells_its_features(name: str, kind: type[Backbone], features: int) -> None:
    network = registry.build(name)
    assert type(network) is kind
    assert network.out_features == features


def test_options_are_the_networks_own() -> None:
    assert registry.build("small", channels=1, width=8).out_features == 32
    with pytest.raises(TypeError, match="widht"):
        registry.build("small", widht=8)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("resnet", "resnet18"),
        ("ResNet18", "resnet18"),
        ("vgg-16", "vgg16"),
        ("smal", "small"),
    ],
)
def test_unknown_name_suggests_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"no backbone '{wrong}'; did you mean {meant}"):
        registry.build(wrong)


def test_name_unlike_any_other_lists_them_all() -> None:
    with pytest.raises(ValueError, match="there are small, resnet18, vgg16"):
        registry.build("")
