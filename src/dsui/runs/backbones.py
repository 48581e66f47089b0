"""The backbone of a run, where a name alone does not say how to build it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from dsui.backbones.named import load_backbone
from dsui.backbones.own import as_backbone
from dsui.backbones.preparation import Preparation, Readout
from dsui.backbones.registry import OWN, has_own_backbone, own_backbone, provided_backbone
from dsui.backbones.spec import call, is_spec, named_function
from dsui.runs.config import RunConfig


@contextmanager
def buildable_backbone(config: RunConfig) -> Iterator[None]:
    """A context in which a run's method can be built, to be given the weights of the run.

    A spec gives its architecture. For a user's module from Python it is the function that the user named.
    """
    shape = (config.channels, config.size, config.size)
    if is_spec(config.backbone):
        readout = None if config.preparation is None else cast(Readout, config.preparation["readout"])
        loaded = load_backbone(config.backbone, size=config.size, pretrained=False, readout=readout)
        with provided_backbone(config.backbone, loaded.backbone):
            yield
    elif config.backbone.startswith(OWN) and not has_own_backbone() and (function := named_function()) is not None:
        with own_backbone(as_backbone(call(function), shape), config.backbone.removeprefix(OWN)):
            yield
    else:
        yield


def preparation_of(config: RunConfig) -> Preparation | None:
    """How a run's images are made of photographs; None for the central square of `dsui.data.decode`."""
    if config.preparation is None:
        return None
    return Preparation.of(config.size, config.recipe.mean, config.recipe.std, config.preparation)
