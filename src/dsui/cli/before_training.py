"""What `dsui train` finds out and tells before it begins, lest it come to light hours later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dsui.cli.choice import FOLDER, WrongUsage

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.data.dataset import ImageSet
    from dsui.runs.config import RunConfig

LARGE = ("resnet18", "vgg16")
"""Backbones that take hours on a CPU."""
FEW_STEPS = 4
"""Fewer than this in an epoch are told of."""


def check_apart(data: str, out: Path) -> None:
    """A run among folders of classes would be taken for a class by whatever reads the images next."""
    if not data.startswith(FOLDER):
        return
    from dsui.data.folder import is_split
    from dsui.data.registry import folder_path

    folder = folder_path(data)
    tops = [folder / "train", folder / "test"] if is_split(folder) else [folder]
    if any(out.resolve().is_relative_to(top.resolve()) for top in tops):
        raise WrongUsage(f"--out {out} lies among the images of {data}; choose a folder outside.")


def has_test(data: str) -> bool:
    """Whether there are test images; an error where those of a folder are of other classes than its training images."""
    if not data.startswith(FOLDER):
        return True
    from dsui.data.folder import is_split, split_files
    from dsui.data.registry import folder_path

    folder = folder_path(data)
    if is_split(folder) and not (folder / "test").is_dir():
        return False
    split_files(folder, "test")
    return True


def tell(config: RunConfig, whole: ImageSet, images: ImageSet, tested: bool, device: str) -> None:
    """On stderr, of all that a user might not expect; `images` are those of `whole` that are trained on."""
    notes = _of_files(whole)
    if not tested:
        rest = "`dsui evaluate` needs --on held-out" if config.held_out else "there are no images to evaluate it with"
        notes.append(f"{config.data} has no folder test, so {rest}.")
    if device == "cpu" and config.backbone in LARGE:
        notes.append(f"{config.backbone} takes long without a GPU; begin with --backbone small --recipe demo.")
    batch = config.recipe.batch
    steps, count = len(images.labels) // batch, len(images.labels)
    if 0 < steps < FEW_STEPS:
        per_epoch = f"{steps} step{'s' * (steps > 1)} of {batch}"
        notes.append(f"{count} images make {per_epoch} an epoch; --set batch={max(2, batch // 4)} makes more of them.")
    for note in notes:
        typer.echo(note, err=True)


def _of_files(images: ImageSet) -> list[str]:
    """Of own images that are not trained on although the user did not name them."""
    from dsui.data.folder import FolderSet

    if not isinstance(images, FolderSet):
        return []
    notes = []
    if images.set_aside:
        count = len(images.files) + len(images.skipped) + images.set_aside
        notes.append(f"{images.set_aside} of {count} images of {images.name} are set aside for test.")
    if images.skipped:
        check = f"`dsui data check {images.name} --skip-bad` names them"
        notes.append(f"{len(images.skipped)} files are left out; {check}.")
    return notes
