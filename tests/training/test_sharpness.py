from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dsui import MoGMMHead
from dsui.training.batch_norm import batch_norms
from dsui.training.sharpness import SharpnessAware, frozen_statistics


def quadratic(curvature: Tensor, parts: list[Tensor]) -> Tensor:
    """w A w / 2, whose gradient is A w."""
    w = torch.cat(parts)
    return w @ curvature @ w / 2


def test_the_second_gradient_on_a_quadratic_is_that_of_the_closed_form() -> None:
    torch.manual_seed(0)
    root = torch.randn(5, 5, dtype=torch.float64)
    curvature, w = root @ root.T, torch.randn(5, dtype=torch.float64)
    parts: list[Tensor] = [nn.Parameter(part.clone()) for part in w.split([2, 3])]
    sharpness = SharpnessAware(parts, radius=0.7)
    quadratic(curvature, parts).backward()
    sharpness.climb()
    step = torch.cat([part.detach() for part in parts]) - w
    torch.testing.assert_close(step.norm().item(), 0.7)
    for part in parts:
        part.grad = None
    quadratic(curvature, parts).backward()
    sharpness.descend()
    g = curvature @ w
    found = torch.cat([part.grad for part in parts if part.grad is not None])
    torch.testing.assert_close(found, curvature @ (w + 0.7 * g / g.norm()))
    assert torch.equal(torch.cat([part.detach() for part in parts]), w)


@pytest.mark.parametrize("gradient", [3e3, float("nan")])
def test_weights_return_to_the_last_bit_from_any_climb(gradient: float) -> None:
    torch.manual_seed(0)
    moving, resting = nn.Parameter(torch.randn(1000)), nn.Parameter(torch.randn(3))
    before = moving.detach().clone(), resting.detach().clone()
    sharpness = SharpnessAware([moving, resting], radius=1e3)
    moving.grad = torch.full((1000,), gradient) * torch.rand(1000)
    for _ in range(2):
        sharpness.climb()
        assert not torch.equal(moving, before[0])
        assert torch.equal(resting, before[1])
        sharpness.descend()
        assert torch.equal(moving, before[0])


def test_a_vanishing_gradient_means_no_climb() -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.zeros(3)
    SharpnessAware([weight], radius=0.1).climb()
    assert torch.equal(weight, torch.ones(3))


def test_steps_out_of_order_are_refused() -> None:
    weight = nn.Parameter(torch.ones(3))
    sharpness = SharpnessAware([weight], radius=0.1)
    with pytest.raises(ValueError, match="call backward"):
        sharpness.climb()
    with pytest.raises(ValueError, match="without climb"):
        sharpness.descend()
    weight.grad = torch.ones(3)
    sharpness.climb()
    with pytest.raises(ValueError, match="twice"):
        sharpness.climb()
    with pytest.raises(ValueError, match="radius"):
        SharpnessAware([weight], radius=0.0)


def test_frozen_statistics_do_not_move_and_the_batch_still_normalises() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.BatchNorm1d(8), MoGMMHead(8, 3, 2))
    x = torch.randn(6, 1, 4, 4) + 2
    net(x)
    before = [buffer.clone() for buffer in net.buffers()]
    expected = net(x).log_joint
    after = [buffer.clone() for buffer in net.buffers()]
    assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    with frozen_statistics(net):
        assert torch.equal(net(x).log_joint, expected)
    with pytest.raises(KeyError), frozen_statistics(net):
        raise KeyError
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), after, strict=True))
    assert all(norm.track_running_stats for norm in batch_norms(net))


def test_frozen_statistics_serve_evaluation_as_always() -> None:
    net = nn.Sequential(nn.BatchNorm1d(4), MoGMMHead(4, 3, 2))
    x = torch.randn(6, 4) + 2
    net(x)
    expected = net.eval()(x).log_joint
    with frozen_statistics(net):
        assert torch.equal(net(x).log_joint, expected)
