"""The network that a run starts from, where it comes from another library or a function of the user's makes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dsui.backbones.named import load_backbone
from dsui.backbones.preparation import Preparation
from dsui.backbones.registry import provided_backbone
from dsui.backbones.spec import allow, is_spec
from dsui.data.registry import FolderOptions
from dsui.errors import DsuiError
from dsui.recipe import Recipe
from dsui.runs.recipe_file import changed

USUAL_SIDE = 32
"""Of images that no network wants in another size."""


@dataclass(frozen=True)
class Start:
    """How images are made of photographs, and whether a named backbone brought that along. None where nothing was
    chosen for a network of dsui's own: published images are as they are, and photographs become central squares."""

    preparation: Preparation | None = None
    is_named: bool = False

    def folder_options(self, size: int | None, channels: int | None, skip_bad: bool) -> FolderOptions:
        """How the images of a folder are read, for this size and these channels where the user chose them."""
        return {
            "size": self.side(size),
            "channels": 3 if channels is None else channels,
            "skip_bad": skip_bad,
            "preparation": self.preparation,
        }

    def side(self, size: int | None) -> int:
        """Of the images, in pixels."""
        usual = USUAL_SIDE if size is None else size
        return usual if self.preparation is None else self.preparation.size

    def recipe(self, recipe: Recipe, data: str) -> Recipe:
        """The recipe with the mean and deviation of pixels that the network was trained with."""
        if self.preparation is None or not self.is_named:
            return recipe
        return changed(recipe, data, {"mean": list(self.preparation.mean), "std": list(self.preparation.std)})

    @property
    def facts(self) -> dict[str, object] | None:
        """What the config of the run keeps."""
        return None if self.preparation is None else self.preparation.facts()


@contextmanager
def started(
    backbone: str,
    weights: Path | None,
    size: int | None,
    fit: Literal["centre", "letterbox"] | None = None,
    classes: int | None = None,
) -> Iterator[Start]:
    """A context in which the backbone, which the user named just now, can be built with its weights. `fit` is how
    photographs become squares; the centre is cut out as the library of the backbone does it, if it has one. `classes`
    is how many the data has, where it is known."""
    if not is_spec(backbone):
        if weights is not None:
            raise DsuiError(f"--weights {weights}: {backbone} starts anew; name a --backbone of another library.")
        side = USUAL_SIDE if size is None else size
        yield Start(None if fit is None else Preparation(size=side, edge=side, fit=fit))
        return
    allow(backbone)
    loaded = load_backbone(backbone, weights, size, classes=classes)
    with provided_backbone(backbone, loaded.backbone):
        found = loaded.preparation
        yield Start(replace(found, fit=fit, edge=found.size) if fit == "letterbox" else found, is_named=True)
