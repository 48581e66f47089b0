"""Losses that go beside the dual-supervised objective: what the paper's last section plans, and two kin.

With h the features before the sphere, z on it, W_i the tied class weights, t the label, theta_i the angle between z
and W_i, S = 30 a fixed scale, and means over the batch:

    center           1/(2M) |h - W_t|^2                                                  Wen et al., ECCV 2016
    a-softmax        CE(S f),   f_i = cos theta_i, f_t = (lambda cos theta_t + psi(theta_t)) / (1 + lambda)
                                psi(theta) = (-1)^k cos(4 theta) - 2 k on [k pi/4, (k+1) pi/4]
                                                                                         Liu et al., CVPR 2017
    additive-angle   CE(S f),   f_i = cos theta_i, f_t = cos(theta_t + 0.5)              Deng et al., CVPR 2019
    additive-cosine  CE(S f),   f_i = cos theta_i, f_t = cos theta_t - 0.35              Wang et al., CVPR 2018
    spread           1/C sum_i ln { 1/(C-1) sum_{j != i} exp(cos(W_i, W_j) / 0.1) }      Ming et al., ICLR 2023 (CIDER)

`center` has no centres of its own: the tied class weight is one, so it pulls features to it, in their own length, and
pushes none away. The batch norm gives h as z |h| / sqrt(M). 1/M counts it per feature dimension, as the objectives do.

The margins are those of the papers; S is 64 in those of ArcFace and CosFace. `a-softmax` has S in place of |z|, because
all features are equally long on the sphere. Its lambda is annealed as in the authors' code, from 1,000 to 5, a little
slower (0.1 for 0.12): max(5, 1000 / (1 + 0.1 n)) after n steps, which are those that the layer's batch norm counted.
`additive-angle` takes cos theta_t - 0.5 sin 0.5 where theta_t + 0.5 passes pi, so that it falls with theta everywhere.

The `spread` of nearly parallel class weights is large. A regular simplex has the least, -1 / (0.1 (C - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.head import MoGMMHead
from dsui.head_output import HeadOutput
from dsui.matrix_product import product

Companion = Literal["center", "a-softmax", "additive-angle", "additive-cosine", "spread"]

SCALE = 30.0
MULTIPLE = 4
"""How many times the angle counts in `a-softmax`."""
ANGLE, COSINE = 0.5, 0.35
"""The margins that the papers use."""
FIRST, LAST, FALL = 1000.0, 5.0, 0.1
"""lambda before the first step, at the end, and how quickly it falls."""
SPREAD_TEMPERATURE = 0.1
EDGE = 1e-6
"""Cosines are kept this far from -1 and 1, where the slope of the angle is infinite."""


def companion_loss(name: Companion, out: HeadOutput, y: Tensor, head: MoGMMHead) -> Tensor:
    """The companion's value, a scalar."""
    return COMPANIONS[name](out, y, head)


def center(out: HeadOutput, y: Tensor, head: MoGMMHead) -> Tensor:
    size = head.in_features
    raw = out.features * (out.norm / math.sqrt(size))[:, None] if head.projection is not None else out.features
    return (raw - head.class_weights[y]).square().sum(1).mean() / (2 * size)


def a_softmax(out: HeadOutput, y: Tensor, head: MoGMMHead) -> Tensor:
    cosines = _cosines(out, head)
    own = _own(cosines, y)
    angle = own.clamp(-1 + EDGE, 1 - EDGE).acos()
    k = (angle * (MULTIPLE / math.pi)).floor().detach()
    psi = (1 - 2 * k.remainder(2)) * (MULTIPLE * angle).cos() - 2 * k
    weight = _annealing(head)
    return _margin_loss(cosines, (weight * own + psi) / (1 + weight), y)


def additive_angle(out: HeadOutput, y: Tensor, head: MoGMMHead) -> Tensor:
    cosines = _cosines(out, head)
    own = _own(cosines, y).clamp(-1 + EDGE, 1 - EDGE)
    moved = (own.acos() + ANGLE).cos()
    return _margin_loss(cosines, torch.where(own > -math.cos(ANGLE), moved, own - ANGLE * math.sin(ANGLE)), y)


def additive_cosine(out: HeadOutput, y: Tensor, head: MoGMMHead) -> Tensor:
    cosines = _cosines(out, head)
    return _margin_loss(cosines, _own(cosines, y) - COSINE, y)


def spread(out: HeadOutput, y: Tensor, head: MoGMMHead) -> Tensor:
    del out, y
    directions = F.normalize(head.class_weights, dim=1)
    cosines = product(directions, directions) / SPREAD_TEMPERATURE
    itself = torch.eye(head.num_classes, dtype=torch.bool, device=cosines.device)
    others = cosines.masked_fill(itself, -torch.inf).logsumexp(1) - math.log(head.num_classes - 1)
    return others.mean()


COMPANIONS: dict[Companion, Callable[[HeadOutput, Tensor, MoGMMHead], Tensor]] = {
    "center": center,
    "a-softmax": a_softmax,
    "additive-angle": additive_angle,
    "additive-cosine": additive_cosine,
    "spread": spread,
}


def check_companion(name: Companion | None, projects: bool) -> None:
    """Raise where `a-softmax` would have no steps to count."""
    if name == "a-softmax" and not projects:
        raise ValueError(
            "the companion a-softmax counts steps by the layer's batch norm; choose a layer that projects "
            "(project=true, head=mogmm) or another companion, as additive-cosine."
        )


def _cosines(out: HeadOutput, head: MoGMMHead) -> Tensor:
    """[B, C] cos theta_i."""
    return product(F.normalize(out.features, dim=1), F.normalize(head.class_weights, dim=1))


def _own(cosines: Tensor, y: Tensor) -> Tensor:
    return cosines.gather(1, y[:, None])[:, 0]


def _margin_loss(cosines: Tensor, own: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of S times the cosines, where the label's is replaced by `own` [B]."""
    return F.cross_entropy(SCALE * cosines.scatter(1, y[:, None], own[:, None]), y)


def _annealing(head: MoGMMHead) -> Tensor:
    """lambda, as a tensor: a captured step computes it anew."""
    assert head.projection is not None
    return (FIRST / (1 + FALL * head.projection.num_batches_tracked.float())).clamp(min=LAST)
