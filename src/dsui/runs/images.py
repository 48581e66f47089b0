"""Which images a run reads, and which it trains on: those of its known classes without those it holds out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from dsui.data.dataset import ImageSet, Subset, subset
from dsui.data.features import features_of
from dsui.data.folder import FolderSet
from dsui.data.registry import FOLDER, OWN, load
from dsui.data.splits import class_split, known_part
from dsui.errors import DsuiError
from dsui.runs.backbones import preparation_of
from dsui.runs.config import RunConfig

IMAGES = "images"
"""Key in the metadata of the weights: the digests of the images a run was trained on, and of its outliers."""
SPLIT_SEED = 0
"""Draws the held-out images: one seed for all runs, so that models are compared on the same images."""

READ_AT_ONCE = 256
"""Images that are in memory together while they are only checked."""


def usual_share(data: str) -> float:
    """The share of the training images that is held out by default."""
    return 0.1 if data.startswith(OWN) else 0.0


def read_split(config: RunConfig, name: str, split: str, root: Path | None) -> ImageSet:
    """A split of the run's data set at its size, or of another one; a folder is read at the run's size and with its
    `skip_bad`."""
    if name.startswith(FOLDER):
        return load(
            name,
            split,
            size=config.size,
            channels=config.channels,
            skip_bad=config.skip_bad,
            preparation=preparation_of(config),
        )
    published = name == config.data and not name.startswith(OWN)
    return load(name, split, root, size=config.size) if published else load(name, split, root)


def check_readable(images: ImageSet | None) -> None:
    """Read all images once, so that an unreadable file is reported before the training and not after it."""
    if images is not None:
        for part in torch.arange(len(images.labels)).split(READ_AT_ONCE):
            images.read(part)


def training_images(config: RunConfig, whole: ImageSet) -> ImageSet:
    """The part of `whole`, the training split of the run's data set, that the run trains on."""
    known = known_images(config, whole)
    return known if config.held_out == 0 else subset(known, training_part(config, known), known.name)


def training_part(config: RunConfig, known: ImageSet) -> Tensor:
    """The indices of the images that the run trains on, among those of its known classes."""
    return torch.arange(len(known.labels)) if config.held_out == 0 else _parts(known, config.held_out)[0]


def held_out_images(config: RunConfig, whole: ImageSet) -> ImageSet:
    """The part of `whole`, the training split of the run's data set, that the run set aside."""
    if config.held_out == 0:
        raise DsuiError(
            "this run held no images out; train it with --calibration 0.1, or evaluate it on the test split."
        )
    known = known_images(config, whole)
    return subset(known, _parts(known, config.held_out)[1], f"{known.name}:held-out")


def known_images(config: RunConfig, images: ImageSet) -> ImageSet:
    """The images of the run's known classes, of any split."""
    return images if config.known is None else known_part(images, class_split(config.known, images))


def digest(images: ImageSet) -> str:
    """What a run records about its images: classes, labels, and the names and sizes of image files, or the features
    themselves; as 16 digits."""
    facts = [images.classes, images.shape, images.labels.tolist(), *_files(images)]
    if (features := features_of(images)) is not None:
        facts.append(features.digest())
    return hashlib.sha256(" ".join(map(str, facts)).encode(errors="surrogateescape")).hexdigest()[:16]


def _files(images: ImageSet) -> list[tuple[str, str, int]]:
    """Class folder, name and size of every file; empty for images that are not files."""
    if isinstance(images, Subset):
        files = _files(images.images)
        return [files[index] for index in images.indices.tolist()] if files else []
    return [(f.parent.name, f.name, f.stat().st_size) for f in images.files] if isinstance(images, FolderSet) else []


def _parts(images: ImageSet, share: float) -> tuple[Tensor, Tensor]:
    """Indices to train on and indices held out, ascending; the same share of every class, and at least one image of it
    on each side. The only image of a class is trained on."""
    if not 0 < share < 1:
        raise DsuiError(f"--calibration {share} must be a share of the training images between 0 and 1, as in 0.1.")
    labels = images.labels
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        if len(members) < 2:
            continue
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        held_out[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    if not held_out.any():
        raise DsuiError(
            f"no class of {images.name} has two training images, so none can be held out; add images or choose "
            "--calibration 0."
        )
    return (~held_out).nonzero().flatten(), held_out.nonzero().flatten()
