"""What every named backbone promises, whatever its architecture."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dsui.backbones import registry
from dsui.backbones.backbone import Backbone

SIDES = {"small": (8, 28, 32, 64), "resnet18": (32, 64), "vgg16": (32, 64)}
CASES = [(name, side) for name, sides in SIDES.items() for side in sides]


@pytest.fixture(scope="module")
def networks() -> dict[tuple[str, int], Backbone]:
    torch.manual_seed(0)
    return {(name, channels): registry.build(name, channels).eval() for name in SIDES for channels in (1, 3)}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "side"), CASES)
def test_images_of_either_colour_become_feature_vectors(
    networks: dict[tuple[str, int], Backbone], name: str, side: int, channels: int
) -> None:
    network = networks[name, channels]
    with torch.no_grad():
        features = network(torch.randn(2, channels, side, side))
    assert features.shape == (2, network.out_features)
    assert features.isfinite().all()


@pytest.mark.parametrize("name", SIDES)
def test_every_activation_is_a_leaky_relu_of_slope_one_fifth(
    networks: dict[tuple[str, int], Backbone], name: str
) -> None:
    activations = [module for module in networks[name, 3].modules() if "ReLU" in type(module).__name__]
    assert activations
    assert all(isinstance(module, nn.LeakyReLU) and module.negative_slope == 0.2 for module in activations)


@pytest.mark.parametrize("name", SIDES)
def test_convolutions_start_kaiming_normal_over_the_fan_out(
    networks: dict[tuple[str, int], Backbone], name: str
) -> None:
    for layer in networks[name, 3].modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * math.prod(layer.kernel_size)
            expected = math.sqrt(2 / (1 + 0.2**2) / fan_out)
            # Five standard errors, 1 / sqrt(2 n) each for n weights: under 3 % from 14,000 weights on.
            tolerance = 5 / math.sqrt(2 * layer.weight.numel())
            assert layer.weight.std().item() == pytest.approx(expected, rel=tolerance)
            assert layer.bias is None or not layer.bias.any()
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()
            assert not layer.bias.any()


@pytest.mark.parametrize("name", SIDES)
def test_gradients_reach_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    # In evaluation mode, because batch statistics cancel whatever a bias in front of them adds.
    network = registry.build(name).eval()
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    dead = [key for key, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert not dead


@pytest.mark.parametrize("name", SIDES)
def test_in_evaluation_a_sample_does_not_feel_its_batch(networks: dict[tuple[str, int], Backbone], name: str) -> None:
    network = networks[name, 3]
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        together, alone = network(images), network(images[1:2])
    # Float32 sums of some 4,600 products, in an order that depends on the batch.
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SIDES)
def test_float64_works_and_agrees_with_float32(networks: dict[tuple[str, int], Backbone], name: str) -> None:
    network = registry.build(name).eval()
    network.load_state_dict(networks[name, 3].state_dict())
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        single, double = network(images), network.double()(images.double())
    assert double.dtype == torch.float64
    # Float32 rounding over at most 18 layers.
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4)
