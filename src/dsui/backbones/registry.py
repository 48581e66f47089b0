"""The backbones by name, as `--backbone` and the configuration of a run spell them.

A user's own module has a name too, "own:" and the name of its class, such as "own:Net". The configuration of a run
holds that name, but the name alone cannot build the module: `own_backbone` says which module it stands for.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from dsui.lazy_registry import LazyRegistry
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    from dsui.backbones.backbone import Backbone

BACKBONES: LazyRegistry[type[Backbone]] = LazyRegistry(
    {
        "small": "dsui.backbones.small:SmallNet",
        "resnet18": "dsui.backbones.resnet:ResNet18",
        "vgg16": "dsui.backbones.vgg:VGG16",
    }
)
FEATURES = "features"
"""The backbone of runs that are trained on features, without a network before the head."""
HEAD = "head"
"""What `freeze_until` is where the whole backbone is frozen, up to the head."""
OWN = "own:"
"""Begins the name of a user's own module."""
_own: ContextVar[Backbone | None] = ContextVar("own backbone", default=None)
_provided: ContextVar[tuple[str, Backbone] | None] = ContextVar("provided backbone", default=None)


def names() -> tuple[str, ...]:
    """The networks for images, as users spell them."""
    return tuple(BACKBONES)


def build(name: str, channels: int = 3, **options: Any) -> Backbone:
    """A freshly initialised backbone; `options` are those of its class: `width` (small), `released_start` (resnet18).

    A name "own:CLASS" gives a copy of the module set by `own_backbone`, with that module's weights, and the name of
    another library's network (`dsui.backbones.spec`) a copy of the one set by `provided_backbone`.
    """
    if name.startswith(OWN):
        if (own := _own.get()) is None:
            raise ValueError(
                f"this model was built on a user's own module, {name.removeprefix(OWN)}; name the function that makes "
                "it, as in --backbone package.module:function, or load it in Python with such a module: "
                "Predictor.load(path, backbone=module)."
            )
        return copy.deepcopy(own)
    if (provided := _provided.get()) is not None and provided[0] == name:
        return copy.deepcopy(provided[1])
    if name == FEATURES:
        from dsui.backbones.features import StandardizedFeatures

        return StandardizedFeatures(channels)
    if name not in BACKBONES:
        raise ValueError(unknown_name("backbone", name, BACKBONES))
    return BACKBONES[name](channels=channels, **options)


@contextmanager
def provided_backbone(name: str, backbone: Backbone) -> Iterator[None]:
    """A context in which `name` builds copies of `backbone`, weights included. It holds in this thread only."""
    token = _provided.set((name, backbone))
    try:
        yield
    finally:
        _provided.reset(token)


def has_own_backbone() -> bool:
    """Whether this is within `own_backbone`."""
    return _own.get() is not None


@contextmanager
def own_backbone(backbone: Backbone, class_name: str) -> Iterator[str]:
    """A context in which "own:CLASS_NAME" builds copies of `backbone`, weights included; it gives that name.

    It holds in this thread only, so that two threads can work on modules of their own.
    """
    token = _own.set(backbone)
    try:
        yield f"{OWN}{class_name}"
    finally:
        _own.reset(token)
