from __future__ import annotations

import io
from copy import deepcopy
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from dsui.training.averaging import WeightAverage


def made_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def move(net: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def weights(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def averaged(average: WeightAverage, net: nn.Module) -> list[Tensor]:
    target = deepcopy(net)
    average.copy_to(target)
    return weights(target)


def test_without_decay_the_average_is_the_mean_of_all_updates_and_forgets_the_start() -> None:
    net = made_net().double()
    average, seen = WeightAverage(net), []
    for seed in range(7):
        move(net, seed)
        average.update()
        seen.append(weights(net))
    for value, *history in zip(averaged(average, net), *seen, strict=True):
        torch.testing.assert_close(value, torch.stack(history).mean(0))


@pytest.mark.parametrize("decay", [0.3, 0.999])
def test_decay_grows_from_a_tenth_to_its_limit(decay: float) -> None:
    net = made_net().double()
    average, expected = WeightAverage(net, decay), weights(net)
    for n in range(6):
        move(net, n)
        average.update()
        d = min(decay, float(Fraction(1 + n, 10 + n)))
        expected = [d * e + (1 - d) * w for e, w in zip(expected, weights(net), strict=True)]
    for value, truth in zip(averaged(average, net), expected, strict=True):
        torch.testing.assert_close(value, truth)


def test_an_average_of_weights_that_rest_is_those_weights() -> None:
    net = made_net()
    average = WeightAverage(net, 0.9999)
    for _ in range(20):
        average.update()
    assert same(averaged(average, net), weights(net))


@pytest.mark.parametrize("decay", [None, 0.9])
def test_a_saved_average_goes_on_to_the_same_bits(decay: float | None) -> None:
    net = made_net()
    average = WeightAverage(net, decay)
    for seed in range(3):
        move(net, seed)
        average.update()
    file = io.BytesIO()
    torch.save(average.state_dict(), file)
    file.seek(0)
    other_net = made_net(seed=1)
    other = WeightAverage(other_net, decay)
    other.load_state_dict(torch.load(file))
    for seed in range(3, 6):
        for each, its_average in ((net, average), (other_net, other)):
            move(each, seed)
            its_average.update()
    assert same(averaged(average, net), averaged(other, other_net))


def test_copying_leaves_the_averaged_model_and_all_buffers_alone() -> None:
    net = made_net()
    average = WeightAverage(net, 0.9)
    move(net, 1)
    average.update()
    move(net, 2)
    own, target = weights(net), made_net()
    buffers = [buffer.clone() for buffer in target.buffers()]
    average.copy_to(target)
    assert same(weights(net), own)
    assert not same(weights(target), own)
    assert same(list(target.buffers()), buffers)
    assert all(parameter.requires_grad for parameter in target.parameters())


def test_the_average_can_be_given_to_a_twin_and_to_no_other_net() -> None:
    net, twin = made_net(), made_net(seed=1)
    average = WeightAverage(net)
    average.copy_to(twin)
    assert same(weights(net), weights(twin))
    with pytest.raises(ValueError, match=r"the model and the averaged model differ in 0\.bias, 0\.weight"):
        average.copy_to(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(4), nn.Linear(4, 2)))
    with pytest.raises(ValueError, match=r"the state dict and the averaged model differ in 2\.weight"):
        average.load_state_dict({n: v for n, v in average.state_dict().items() if n != "average.2.weight"})


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_outside_its_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="below 1"):
        WeightAverage(made_net(), decay)
