"""The methods by name, as `--method` spells them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from dsui.methods.dsui import DualSupervised
from dsui.methods.method import Method
from dsui.methods.msp import MaxSoftmax
from dsui.training.recipe import Recipe

METHODS: dict[str, Callable[[str, int, int, Recipe], Method]] = {"dsui": DualSupervised, "msp": MaxSoftmax}


def names() -> tuple[str, ...]:
    return tuple(METHODS)


def build(name: str, backbone: str, channels: int, num_classes: int, recipe: Recipe) -> Method:
    """A freshly initialised method."""
    if name not in METHODS:
        nearest = get_close_matches(name.lower(), METHODS, n=1, cutoff=0)[0]
        raise ValueError(f"no method {name!r}; did you mean {nearest!r}? There are {', '.join(METHODS)}.")
    return METHODS[name](backbone, channels, num_classes, recipe)
