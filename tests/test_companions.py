"""Companions of the objective equal their papers' formulas, written here in NumPy, and pull to where they should."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.companions import COMPANIONS, SCALE, Companion, companion_loss
from dsui.head import MoGMMHead
from dsui.head_output import HeadOutput
from dsui.objectives import DualSupervisedLoss

Array = NDArray[np.float64]


def made(size: int = 5, classes: int = 4, batch: int = 9) -> tuple[HeadOutput, Tensor, MoGMMHead]:
    torch.manual_seed(0)
    head = MoGMMHead(size, classes, components=2).double()
    head.means.data *= 10
    y = torch.arange(batch) % classes
    return head(3 * torch.randn(batch, size, dtype=torch.float64) + head.means[y, 0].detach()), y, head


def steps(head: MoGMMHead, count: int) -> None:
    assert head.projection is not None
    head.projection.num_batches_tracked.fill_(count)


def softmax_loss(logits: Array, y: Array) -> float:
    shifted = logits - logits.max(1, keepdims=True)
    rows = np.arange(len(y))
    return float((np.log(np.exp(shifted).sum(1)) - shifted[rows, y]).mean())


def oracle(name: str, out: HeadOutput, y: Tensor, head: MoGMMHead, count: int) -> float:
    """The formulas of the papers, sample by sample."""
    z, weights = out.features.detach().numpy(), head.class_weights.detach().numpy()
    size, labels = z.shape[1], y.numpy()
    if name == "center":
        raw = z * (out.norm.detach().numpy() / math.sqrt(size))[:, None]
        return float(np.mean([np.sum((raw[b] - weights[t]) ** 2) for b, t in enumerate(labels)]) / (2 * size))
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    if name == "spread":
        rows = []
        for i in range(len(unit)):
            others = [math.exp(unit[i] @ unit[j] / 0.1) for j in range(len(unit)) if j != i]
            rows.append(math.log(np.mean(others)))
        return float(np.mean(rows))
    cosines = (z / np.linalg.norm(z, axis=1, keepdims=True)) @ unit.T
    logits = cosines.copy()
    for b, t in enumerate(labels):
        angle = math.acos(cosines[b, t])
        if name == "additive-cosine":
            logits[b, t] = cosines[b, t] - 0.35
        elif name == "additive-angle":
            logits[b, t] = math.cos(angle + 0.5) if angle + 0.5 < math.pi else cosines[b, t] - 0.5 * math.sin(0.5)
        else:
            k = min(3, int(angle // (math.pi / 4)))
            fall = max(5.0, 1000 / (1 + 0.1 * count))
            psi = (-1) ** k * math.cos(4 * angle) - 2 * k
            logits[b, t] = (fall * cosines[b, t] + psi) / (1 + fall)
    return softmax_loss(SCALE * logits, labels)


@pytest.mark.parametrize("name", COMPANIONS)
@pytest.mark.parametrize("count", [0, 100, 100_000])
def test_companions_equal_an_independent_implementation(name: Companion, count: int) -> None:
    out, y, head = made()
    steps(head, count)
    # `spread` and lambda are computed in float32
    assert companion_loss(name, out, y, head).item() == pytest.approx(oracle(name, out, y, head, count), rel=1e-5)


@pytest.mark.parametrize("name", ["a-softmax", "additive-angle"])
def test_the_margin_falls_with_the_angle_everywhere(name: Companion) -> None:
    """Two classes on a circle; the feature turns from its own class weight to the opposite point, and the other class
    stands at a right angle to it there, so that its cosine stays 0."""
    values = []
    for angle in torch.linspace(0.3, math.pi - 0.01, 200).tolist():
        out, y, head = on_circle(angle, other=angle + math.pi / 2)
        steps(head, 10**6)
        values.append(companion_loss(name, out, y, head).item())
    assert (np.diff(values) > 0).all()


def on_circle(angle: float, other: float = 1.5) -> tuple[HeadOutput, Tensor, MoGMMHead]:
    """One feature of class 0 at an angle to its class weight on the x-axis; class 1 is at the angle `other`."""
    head = MoGMMHead(2, 2, components=1).double()
    head.means.data = torch.tensor([[[1.0, 0.0]], [[math.cos(other), math.sin(other)]]]).double()
    z = math.sqrt(2) * torch.tensor([[math.cos(angle), math.sin(angle)]]).double()
    features = z.requires_grad_()
    cut = HeadOutput(
        logits=features @ head.class_weights.T,
        class_scores=features @ head.class_weights.T,
        features=features,
        norm=torch.tensor([math.sqrt(2)]),
        component_log_prob=torch.zeros(1, 2, 1),
        log_mixing=torch.zeros(2, 1),
        log_prior=torch.zeros(2),
    )
    return cut, torch.tensor([0]), head


@pytest.mark.parametrize("name", ["a-softmax", "additive-angle", "additive-cosine", "center"])
def test_descent_turns_a_feature_towards_its_own_class(name: Companion) -> None:
    out, y, head = on_circle(0.9)
    steps(head, 10**6)
    companion_loss(name, out, y, head).backward()
    assert out.features.grad is not None
    moved = out.features.detach() - 0.01 * out.features.grad
    assert moved[0, 0] / moved[0].norm() > out.features[0, 0] / out.features[0].norm()


def test_spread_drives_class_weights_apart() -> None:
    head = MoGMMHead(2, 2, components=1)
    head.means.data = torch.tensor([[[1.0, 0.1]], [[1.0, -0.1]]])
    out, y, _ = on_circle(0.5)
    companion_loss("spread", out, y, head).backward()
    moved = head.means.detach() - 0.01 * head.means.grad  # type: ignore[operator]
    assert torch.cosine_similarity(moved[0], moved[1]) < torch.cosine_similarity(*head.means.detach())


def test_spread_is_least_for_a_simplex() -> None:
    out, y, head = made(size=4, classes=5)
    simplex = (torch.eye(5) - 0.2).double() @ torch.linalg.svd((torch.eye(5) - 0.2).double())[2].T[:, :4]
    head.means.data = simplex[:, None].repeat(1, 2, 1)
    assert companion_loss("spread", out, y, head).item() == pytest.approx(-1 / (0.1 * 4), rel=1e-5)


@pytest.mark.parametrize("name", get_args(Companion))
def test_the_objective_adds_its_companion_times_the_weight(name: Companion) -> None:
    out, y, head = made()
    plain, both = DualSupervisedLoss(), DualSupervisedLoss(companion=name, companion_weight=0.5)
    difference = both(out, y, head) - plain(out, y, head)
    torch.testing.assert_close(difference, 0.5 * both.terms[name].to(difference.dtype), rtol=1e-5, atol=1e-6)
    assert set(both.terms) == {*plain.terms, name}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"companion": "centre"}, "companion must be one of"),
        ({"companion_weight": -1.0}, "companion_weight must be finite and not negative"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DualSupervisedLoss(**settings)


def test_a_softmax_without_the_sphere_is_refused() -> None:
    head = MoGMMHead(3, 2, project=False)
    with pytest.raises(ValueError, match="counts steps by the layer's batch norm"):
        DualSupervisedLoss(companion="a-softmax")(head(torch.randn(4, 3)), torch.arange(4) % 2, head)
