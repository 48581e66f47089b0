"""The network that `dsui train` starts from, where it comes from another library or is the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dsui.backbones.registry import HEAD
from dsui.backbones.spec import allow, check_spec, is_spec
from dsui.cli.arguments import check_name
from dsui.cli.errors import UsageError
from dsui.data.registry import FOLDER, FOLDER_SHAPE

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.backbones.preparation import Preparation
    from dsui.data.registry import FolderOptions
    from dsui.recipe import Recipe
    from dsui.runs.config import RunConfig

LETTERBOX: Literal["letterbox"] = "letterbox"
FITS = ("crop", LETTERBOX)


@dataclass(frozen=True)
class Start:
    """How images are made of photographs, and whether a named backbone brought that along. None for published data."""

    preparation: Preparation | None = None
    is_named: bool = False

    def folder_options(self, channels: int | None, skip_bad: bool) -> FolderOptions:
        """How the images of a folder are read, with these channels where the user chose them."""
        return {
            "size": FOLDER_SHAPE[1] if self.preparation is None else self.preparation.size,
            "channels": 3 if channels is None else channels,
            "skip_bad": skip_bad,
            "preparation": self.preparation,
        }

    def recipe(self, recipe: Recipe, data: str) -> Recipe:
        """The recipe with the mean and deviation of pixels that the network was trained with."""
        if self.preparation is None or not self.is_named:
            return recipe
        from dsui.runs.recipe_file import changed

        return changed(recipe, data, {"mean": list(self.preparation.mean), "std": list(self.preparation.std)})

    @property
    def facts(self) -> dict[str, object] | None:
        """What the config of the run keeps."""
        return None if self.preparation is None else self.preparation.facts()


def frozen(freeze: bool, freeze_until: str | None) -> dict[str, str]:
    """The setting of the recipe that --freeze and --freeze-until mean."""
    return {"freeze_until": freeze_until or HEAD} if freeze or freeze_until is not None else {}


def check(
    backbone: str,
    data: str,
    weights: Path | None,
    channels: int | None,
    freeze: bool,
    freeze_until: str | None,
    fit: str | None,
) -> None:
    """Raise where the options do not go with each other, before anything is loaded."""
    if fit is not None:
        check_name("fit", fit, FITS)
        if not data.startswith(FOLDER):
            raise UsageError(f"--fit {fit} is for folder:PATH; leave it out for {data}.")
    if freeze and freeze_until is not None:
        raise UsageError("--freeze leaves the whole backbone as it is and --freeze-until a part; choose one.")
    if is_spec(backbone):
        check_spec(backbone)
        if channels not in (None, 3):
            raise UsageError(f"--channels {channels}: {backbone} takes colour images; leave it out.")
        if not data.startswith(FOLDER):
            raise UsageError(
                f"--backbone {backbone} is for photographs in folder:PATH; for {data} write its features with "
                "`dsui embed` and train on features:FILE."
            )
        return
    if weights is not None:
        raise UsageError(f"--weights {weights}: {backbone} starts anew; name a --backbone of another library.")
    if freeze or freeze_until:
        raise UsageError(
            f"{backbone} starts with random weights, which should not be frozen; name a pretrained --backbone, as in "
            "hf:facebook/dinov2-small."
        )


@contextmanager
def started(
    backbone: str, weights: Path | None, data: str, size: int | None, fit: str | None, begun: RunConfig | None
) -> Iterator[Start]:
    """A context in which the backbone can be built with its weights. `fit` is crop or letterbox; `begun` is the run
    that goes on, if any."""
    if not is_spec(backbone):
        yield Start(_own_preparation(data, size, fit, begun))
        return
    from dsui.backbones.named import load_backbone
    from dsui.backbones.registry import provided_backbone

    allow(backbone)  # the user named it just now
    loaded = load_backbone(backbone, weights, size)
    with provided_backbone(backbone, loaded.backbone):
        letterbox = fit == LETTERBOX or (fit is None and begun is not None and _is_letterbox(begun))
        found = loaded.preparation
        yield Start(replace(found, fit=LETTERBOX, edge=found.size) if letterbox else found, is_named=True)


def _own_preparation(data: str, size: int | None, fit: str | None, begun: RunConfig | None) -> Preparation | None:
    """For a network without a library; None for published data, and where a run of before goes on without it."""
    if not data.startswith(FOLDER) or size is None:
        return None
    if begun is not None and fit is None and begun.preparation is None:
        return None
    from dsui.backbones.preparation import Preparation

    letterbox = fit == LETTERBOX or (fit is None and begun is not None and _is_letterbox(begun))
    return Preparation(size=size, edge=size, fit=LETTERBOX if letterbox else "centre")


def _is_letterbox(run: RunConfig) -> bool:
    return run.preparation is not None and run.preparation["fit"] == LETTERBOX
