"""The backbones by name, as `--backbone` and the configuration of a run spell them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from dsui.backbones.resnet import ResNet18
from dsui.backbones.small import SmallNet
from dsui.backbones.vgg import VGG16
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    from dsui.backbones import Backbone

BACKBONES: dict[str, type[Backbone]] = {"small": SmallNet, "resnet18": ResNet18, "vgg16": VGG16}
OWN = "own:"
"""Begins the name of a backbone that is no name's but a user's module; see `own_backbone`."""
_own: ContextVar[Backbone | None] = ContextVar("own backbone", default=None)


def names() -> tuple[str, ...]:
    """All of them, as users spell them."""
    return tuple(BACKBONES)


def build(name: str, channels: int = 3, **options: Any) -> Backbone:
    """A freshly initialised backbone; `options` are its class's own: `width` (small), `released_start` (resnet18)."""
    if name.startswith(OWN):
        if (own := _own.get()) is None:
            raise ValueError(
                f"this model stands on a module of its user's own, {name.removeprefix(OWN)}; load it in Python with "
                "such a module: Predictor.load(path, backbone=module)."
            )
        return copy.deepcopy(own)
    if name not in BACKBONES:
        raise ValueError(unknown_name("backbone", name, BACKBONES))
    return BACKBONES[name](channels=channels, **options)


@contextmanager
def own_backbone(backbone: Backbone, kind: str) -> Iterator[str]:
    """Within this context, and in this thread, the name it gives builds copies of `backbone`, weights and all."""
    token = _own.set(backbone)
    try:
        yield f"{OWN}{kind}"
    finally:
        _own.reset(token)
