"""Tiny ImageNet (Le and Yang, 2015): 64x64 colour photographs in 200 classes, named by their WordNet ids.

On disk, as the official archive unpacks; label i is the i-th id in alphabetical order. The official test images have no
labels, so the official validation images are the split "test".

    ROOT/tiny-imagenet-200/   wnids.txt                     the 200 ids, one per line
                              train/ID/images/*.JPEG
                              val/images/*.JPEG             val/val_annotations.txt: file, id and a box per line
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from dsui.data.dataset import MemorySet
from dsui.data.decode import ImageError, decode_image, pixels
from dsui.data.info import DatasetInfo, RemoteFile, Split, damaged_file, missing_file, unreadable_file
from dsui.data.read_all import read_all
from dsui.excerpt import excerpt
from dsui.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

NAME = "tiny-imagenet"
FOLDER = "tiny-imagenet-200"
SIDE = 64
SHAPE = (3, SIDE, SIDE)
ID, FILE = re.compile(r"n\d{1,12}", re.ASCII), re.compile(r"\w{1,100}\.JPEG", re.ASCII)
"""A WordNet id, and the name of a validation image."""
LONGEST_LIST = 1 << 24
"""Bytes of a list; the list of the validation images holds 400 kB."""


def tiny_imagenet(root: Path, split: str, choice: Callable[[int], Tensor] | None = None) -> MemorySet:
    """The images of a split, or those whose indices `choice` gives for their number; the few grey ones become RGB."""
    folder = root / FOLDER
    classes = _classes(folder / "wnids.txt")
    listed = _train_files(folder / "train", classes) if split == "train" else _val_files(folder / "val", classes)
    if choice is not None:
        listed = [listed[index] for index in choice(len(listed)).tolist()]
    files, labels = [file for file, _ in listed], [label for _, label in listed]
    return MemorySet(NAME, classes, read_all(files, _read, SHAPE, threads=1), torch.tensor(labels, dtype=torch.int64))


def _classes(path: Path) -> tuple[str, ...]:
    """The ids, each of which names a folder, so that none may lead out of the data set."""
    names = sorted(_lines(path))
    for name in names:
        if not ID.fullmatch(name):
            raise damaged_file(path, f"the line {excerpt(name)} is no WordNet id such as n01443537", NAME)
    if len(set(names)) < len(names):
        raise damaged_file(path, "it names a class twice", NAME)
    return tuple(names)


def _train_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    listed = []
    for label, name in enumerate(classes):
        files = sorted((folder / name / "images").glob("*.JPEG"))
        if not files:
            raise missing_file(folder / name / "images" / "*.JPEG", NAME)
        listed += [(file, label) for file in files]
    return listed


def _val_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    annotations = folder / "val_annotations.txt"
    label_of = {name: label for label, name in enumerate(classes)}
    listed = []
    for line in _lines(annotations):
        file, name, *_ = [*line.split("\t"), ""]
        if name not in label_of:
            raise damaged_file(annotations, f"the line {excerpt(line)} names no class of wnids.txt", NAME)
        if not FILE.fullmatch(file):
            raise damaged_file(annotations, f"the line {excerpt(line)} names no file of val/images", NAME)
        listed.append((folder / "images" / file, label_of[name]))
    return listed


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise missing_file(path, NAME)
    try:
        lines = read_regular(path, LONGEST_LIST).decode("utf-8").split("\n")
    except OSError as error:
        raise unreadable_file(path, error) from error
    except UnicodeDecodeError as error:
        raise damaged_file(path, "it is not text", NAME) from error
    if not (filled := [line.strip() for line in lines if line.strip()]):
        raise damaged_file(path, "it is empty", NAME)
    return filled


def _read(file: Path) -> NDArray[np.uint8]:
    try:
        image = decode_image(file, channels=3)
    except ImageError as error:
        if not file.is_file():
            raise missing_file(file, NAME) from error
        raise damaged_file(file, str(error), NAME) from error
    if image.size != (SIDE, SIDE):
        raise damaged_file(file, f"it is {image.width}x{image.height} pixels, not {SIDE}x{SIDE}", NAME)
    return pixels(image)


# Train means: as commonly published. Validation means: measured. The publisher states no checksum. Several public
# repositories state this one alike, for a file of the size that others state together with the md5 of Avalanche
# (benchmarks/datasets/tiny_imagenet), 90528d7ca1a48142e341f4ef8d21d0de.
TINY_IMAGENET = DatasetInfo(
    name=NAME,
    load=tiny_imagenet,
    load_some=tiny_imagenet,
    classes=200,
    shape=SHAPE,
    splits={
        "train": Split(100_000, (0.4802, 0.4481, 0.3975), (f"{FOLDER}/train",)),
        "test": Split(10_000, (0.4824, 0.4495, 0.3981), (f"{FOLDER}/val",)),
    },
    page="http://cs231n.stanford.edu",
    licence="non-commercial",
    files=(
        RemoteFile(
            name="tiny-imagenet-200.zip",
            addresses=(
                "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "https://image-net.org/data/tiny-imagenet-200.zip",
            ),
            yields=tuple(f"{FOLDER}/{part}" for part in ("wnids.txt", "train", "val/val_annotations.txt")),
            begins=b"PK\x03\x04",
            unpacks_to=FOLDER,
            checksum="sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            largest=248_100_043,
        ),
    ),
)
