from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dsui.backbones.resnet import BasicBlock, ResNet18


def test_with_ten_classes_there_are_as_many_parameters_as_published() -> None:
    network = ResNet18()
    linear = nn.Linear(network.out_features, 10)
    # kuangliu/pytorch-cifar and every CIFAR ResNet18 after it.
    assert sum(p.numel() for p in [*network.parameters(), *linear.parameters()]) == 11_173_962


@pytest.mark.parametrize("side", [32, 64])
def test_image_is_halved_three_times_and_never_in_the_stem(side: int) -> None:
    network = ResNet18().eval()
    with torch.no_grad():
        stem = network.stem(torch.zeros(1, 3, side, side))
        last = network.blocks(stem)
    assert stem.shape == (1, 64, side, side)
    assert last.shape == (1, 512, side // 8, side // 8)


def test_at_32_the_mean_is_the_released_average_pool_of_four() -> None:
    network, images = ResNet18().eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        pooled = nn.AvgPool2d(4)(network.blocks(network.stem(images))).flatten(1)
        # Two orders of summing 16 numbers in float32.
        torch.testing.assert_close(network(images), pooled, rtol=1e-5, atol=1e-6)


def test_block_whose_residual_is_silent_is_the_activated_shortcut() -> None:
    block, x = BasicBlock(8, 8).eval(), torch.randn(2, 8, 4, 4)
    nn.init.zeros_(block.residual[-1].weight)  # type: ignore[arg-type]
    torch.testing.assert_close(block(x), nn.functional.leaky_relu(x, 0.2), rtol=0, atol=0)


def test_released_start_leaves_shortcuts_at_the_default_and_uses_the_plain_relu_gain() -> None:
    torch.manual_seed(0)
    shortcuts = 0
    for layer in ResNet18(released_start=True).modules():
        if not isinstance(layer, nn.Conv2d):
            continue
        tolerance = 5 / math.sqrt(2 * layer.weight.numel())  # five standard errors of a deviation
        if layer.kernel_size == (1, 1):
            shortcuts += 1
            bound = 1 / math.sqrt(layer.in_channels)  # PyTorch's default: uniform over +-1 / sqrt(fan in)
            assert layer.weight.abs().max() <= bound
            assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=tolerance)
        else:
            expected = math.sqrt(2 / (9 * layer.out_channels))
            assert layer.weight.std().item() == pytest.approx(expected, rel=tolerance)
    assert shortcuts == 3
