"""The network that `dsui train` starts from, where it comes from another library or is the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsui.backbones.registry import HEAD
from dsui.backbones.spec import allow, check_spec, is_spec
from dsui.cli.errors import UsageError
from dsui.data.registry import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.backbones.preparation import Preparation
    from dsui.data.registry import FolderOptions
    from dsui.recipe import Recipe


@dataclass(frozen=True)
class Start:
    """What a named backbone brings along; nothing for dsui's own networks."""

    preparation: Preparation | None = None

    def folder_options(self, size: int | None, channels: int | None, skip_bad: bool) -> FolderOptions:
        """How the images of a folder are read, for this size and these channels where the user chose them."""
        usual = 32 if size is None else size
        return {
            "size": usual if self.preparation is None else self.preparation.size,
            "channels": 3 if channels is None else channels,
            "skip_bad": skip_bad,
            "preparation": self.preparation,
        }

    def recipe(self, recipe: Recipe, data: str) -> Recipe:
        """The recipe with the mean and deviation of pixels that the network was trained with."""
        if self.preparation is None:
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
    backbone: str, data: str, weights: Path | None, channels: int | None, freeze: bool, freeze_until: str | None
) -> None:
    """Raise where the options do not go with each other, before anything is loaded."""
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
def started(backbone: str, weights: Path | None, size: int | None) -> Iterator[Start]:
    """A context in which the backbone can be built with its weights."""
    if not is_spec(backbone):
        yield Start()
        return
    from dsui.backbones.named import load_backbone
    from dsui.backbones.registry import provided_backbone

    allow(backbone)  # the user named it just now
    loaded = load_backbone(backbone, weights, size)
    with provided_backbone(backbone, loaded.backbone):
        yield Start(loaded.preparation)
