"""What `dsui train` finds out before it begins, so that a user does not learn it hours later."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsui.backbones.registry import FEATURES as FEATURES_BACKBONE
from dsui.backbones.spec import is_spec
from dsui.cli import names, train_choices
from dsui.cli.arguments import check_dataset, check_name, select_device
from dsui.cli.errors import UsageError, as_usage_errors
from dsui.cli.terminal import print_line
from dsui.data.registry import FEATURES, FOLDER, OWN, own_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsui.data.dataset import ImageSet
    from dsui.runs.config import RunConfig

LARGE_BACKBONES = ("resnet18", "vgg16")
"""These take hours on a CPU."""
FEW_STEPS = 4
"""Fewer steps in an epoch than this are worth a note."""


def backbone_and_recipe(
    data: str, backbone: str | None, recipe: str | None, freeze: bool, device: str, begun: RunConfig | None
) -> tuple[str, str]:
    """Those that the user chose, checked, or the usual ones. Features have a recipe of their own and no network; where
    the whole network is frozen, the head is trained on features too. For a folder the network is chosen by the device.
    `begun` is the run that goes on, if any."""
    if data.startswith(FEATURES):
        if backbone not in (None, FEATURES_BACKBONE):
            raise UsageError(f"--backbone {backbone}: {data} are features already; leave it out.")
        return FEATURES_BACKBONE, recipe or "features"
    if data.startswith(FOLDER):
        backbone = backbone or train_choices.network(select_device(device).type, begun)
        recipe = recipe or train_choices.recipe(begun, freeze)
    backbone = backbone or "resnet18"
    if not is_spec(backbone):
        check_name("backbone", backbone, (*names.backbones(), "hf:NAME", "timm:NAME", "torchvision:NAME"))
    return backbone, recipe or "paper"


def check_data(data: str, outliers: str | None, size: int | None, folder_options: bool) -> None:
    """Raise if the data sets do not exist or do not go with each other or with the options of folder:PATH."""
    used = [name for name in (data, outliers) if name is not None]
    for name in used:
        check_dataset(name)
    if folder_options and not any(name.startswith(FOLDER) for name in used):
        raise UsageError(f"--channels and --skip-bad are for folder:PATH; {data} is used as published.")
    if data.startswith(FEATURES):
        if size is not None:
            raise UsageError(f"--size {size}: {data} are features, which have no size; leave it out.")
        if outliers is not None and not outliers.startswith(FEATURES):
            raise UsageError(f"--outliers {outliers}: {data} are features; name a file of features:FILE.")
    elif outliers is not None and outliers.startswith(FEATURES):
        raise UsageError(f"--outliers {outliers}: {data} are images and these are features; name images.")
    if outliers is not None and not outliers.startswith(OWN):
        from dsui.data.registry import dataset_info, or_folder

        if "train" not in dataset_info(outliers).splits:
            advice = f"name another set{or_folder(outliers)}"
            raise UsageError(f"--outliers {outliers}: it has no training images; {advice}.")
    if outliers is not None and _real_path(outliers) == _real_path(data):
        raise UsageError(f"--outliers {outliers}: the network is trained on these images as its own; name others.")
    _check_size(data, size)


def _check_size(data: str, size: int | None) -> None:
    """Raise if --size would enlarge the images of a published set."""
    if size is not None and not data.startswith(OWN):
        from dsui.data.registry import dataset_info
        from dsui.data.resize import check_size

        with as_usage_errors():
            check_size(f"--data {data}", dataset_info(data).shape, size)


def without_slash(data: str) -> str:
    """folder:PATH for folder:PATH/, so that the run has one name for it."""
    return data.rstrip("/") if data.startswith(FOLDER) and data.rstrip("/") != FOLDER else data


def has_test_images(data: str) -> bool:
    """Whether the data set has test images; raises if those of a folder have classes without training images."""
    if data.startswith(FEATURES):
        from dsui.data.features import has_test_rows

        return has_test_rows(own_path(data))
    if not data.startswith(FOLDER):
        return True
    from dsui.data.folder import is_split, split_files
    from dsui.data.registry import folder_path

    folder = folder_path(data)
    if is_split(folder) and not (folder / "test").is_dir():
        return False
    split_files(folder, "test")
    return True


def print_notes(
    config: RunConfig, whole: ImageSet, images: ImageSet, chosen: Sequence[str], *, has_test: bool, device: str
) -> None:
    """Print to stderr what a user might not expect; `images` are the part of `whole` that is trained on, and `chosen`
    says what was chosen for the user. Of one class alone nothing, since training refuses it."""
    if len(images.classes) < 2:
        return
    notes = [*_notes_on_files(whole), *chosen]
    if config.data.startswith(FOLDER) and config.recipe.name == train_choices.RECIPE:
        notes.append(train_choices.length(config))
    notes += _notes_on_classes(config, whole, images)
    if not has_test:
        rest = "`dsui evaluate` needs --on held-out" if config.held_out else "there are no images to evaluate it with"
        notes.append(f"{config.data} has no folder test, so {rest}.")
    if device == "cpu" and config.backbone in LARGE_BACKBONES:
        notes.append(f"{config.backbone} takes long without a GPU; begin with --backbone small.")
    batch, count = config.recipe.batch, len(images.labels)
    steps = count // batch
    if 0 < steps < FEW_STEPS and (config.recipe.name != train_choices.RECIPE or batch > train_choices.SMALLEST_BATCH):
        per_epoch = f"{steps} step{'s' * (steps > 1)} of {batch}"
        notes.append(
            f"{count} images make only {per_epoch} an epoch; --set batch={max(2, batch // 4)} makes more steps."
        )
    for note in notes:
        print_line(note, err=True)


def _notes_on_classes(config: RunConfig, whole: ImageSet, images: ImageSet) -> list[str]:
    """About classes of uneven size in a user's own data, unless they are balanced, about classes of a single image, and
    about classes whose mixtures have too few images to start from."""
    from dsui.data.unevenness import sentence, single_images
    from dsui.runs.images import known_images

    per_class = _per_class(images)
    uneven = sentence(per_class) if config.data.startswith(OWN) and config.recipe.balance == "none" else None
    single = single_images(_per_class(known_images(config, whole))) if config.held_out else None
    return list(filter(None, (uneven, single, _note_on_mixtures(config, per_class))))


def _per_class(images: ImageSet) -> dict[str, int]:
    import torch

    counts = torch.bincount(images.labels, minlength=len(images.classes)).tolist()
    return dict(zip(images.classes, counts, strict=True))


def _note_on_mixtures(config: RunConfig, per_class: dict[str, int]) -> str | None:
    """Where EM starts the mixtures (`dsui.em.start`)."""
    from dsui.em import SAMPLES_PER_COMPONENT
    from dsui.methods.registry import effective_options

    options = effective_options(config.method, config.recipe, config.options)
    components = options.get("components")
    if not options.get("initialize") or not isinstance(components, int):
        return None
    few = [name for name, count in per_class.items() if count < SAMPLES_PER_COMPONENT * components]
    if not few:
        return None
    classes = f"Class {few[0]} has" if len(few) == 1 else f"{len(few):,} classes have"
    return (
        f"{classes} fewer than {SAMPLES_PER_COMPONENT * components} images, too few for {components} components; EM "
        "starts such classes with fewer, and with one variance for all classes."
    )


def _notes_on_files(images: ImageSet) -> list[str]:
    """About images of folder:PATH that are not trained on although the user did not exclude them by name."""
    from dsui.data.features import FeatureSet
    from dsui.data.folder import FolderSet
    from dsui.data.passed_over import count_of, passed_over
    from dsui.data.registry import folder_path

    if isinstance(images, FeatureSet) and images.set_aside:
        total = len(images.file.features)
        return [f"{images.set_aside:,} of {total:,} rows of {images.name} are set aside for test."]
    if not isinstance(images, FolderSet):
        return []
    notes = []
    if images.set_aside:
        count = len(images.files) + len(images.skipped) + images.set_aside
        notes.append(f"{images.set_aside} of {count} images of {images.name} are set aside for test.")
    if passed := count_of(passed_over(folder_path(images.name))):
        notes.append(f"{passed:,} files are passed over; `dsui data check {images.name}` names them and says why.")
    if images.skipped:
        check = f"`dsui data check {images.name} --skip-bad` names them"
        notes.append(f"{len(images.skipped)} files are left out; {check}.")
    return notes


def _real_path(name: str) -> str:
    """A data set's name, or the real path of a user's own data, which may be spelled in several ways."""
    return os.path.realpath(own_path(name)) if name.startswith(OWN) else name
