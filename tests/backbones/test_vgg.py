from __future__ import annotations

import pytest
import torch
from torch import nn

from dsui.backbones.vgg import VGG16


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def test_parameters_are_as_many_as_published() -> None:
    network = VGG16()
    convolutions = [layer for layer in network.layers if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 13
    assert count(*convolutions) == 14_714_688  # torchvision vgg16().features
    assert count(network) == 14_723_136  # torchvision vgg16_bn().features
    assert count(network, nn.Linear(network.out_features, 10)) == 14_728_266  # kuangliu/pytorch-cifar VGG16


@pytest.mark.parametrize(("side", "last"), [(32, 1), (64, 2)])
def test_last_map_before_the_mean(side: int, last: int) -> None:
    network = VGG16().eval()
    with torch.no_grad():
        assert network.layers(torch.zeros(1, 3, side, side)).shape == (1, 512, last, last)


def test_too_small_an_image_is_refused_with_the_alternatives() -> None:
    with pytest.raises(ValueError, match="needs 32x32 pixels, got 28x28; choose small or resnet18"):
        VGG16(channels=1)(torch.zeros(2, 1, 28, 28))
