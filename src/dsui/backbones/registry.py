"""The backbones by name, as `--backbone` and the configuration of a run spell them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dsui.backbones.resnet import ResNet18
from dsui.backbones.small import SmallNet
from dsui.backbones.vgg import VGG16

if TYPE_CHECKING:
    from dsui.backbones import Backbone

BACKBONES: dict[str, type[Backbone]] = {"small": SmallNet, "resnet18": ResNet18, "vgg16": VGG16}


def names() -> tuple[str, ...]:
    return tuple(BACKBONES)


def build(name: str, channels: int = 3, **options: Any) -> Backbone:
    """A freshly initialised backbone; `options` are its class's own: `width` (small), `released_start` (resnet18)."""
    if name not in BACKBONES:
        nearest = get_close_matches(name.lower(), BACKBONES, n=1, cutoff=0)[0]
        raise ValueError(f"no backbone {name!r}; did you mean {nearest!r}? There are {', '.join(BACKBONES)}.")
    return BACKBONES[name](channels=channels, **options)
