"""Folders for two small studies: do doubles help photographs of one's own that a network learns from nothing?

    python -m studies.photos_doubles ROOT FOLDER cifar100          # for a CPU and the small net
    python -m studies.photos_doubles ROOT FOLDER tiny-imagenet     # for a GPU and ResNet18

reads the data set below ROOT and makes FOLDER/0, FOLDER/1, ... , one for each draw of classes (`SHARES` says how many):

    NAME-draw/train/CLASS    training images of each known class
    NAME-draw/test/CLASS     the official test images of each
    other-classes/CLASS      the official test images of other classes

The names are alike in all draws, so that a table takes them for runs of one data set. The runs of draw 0 are made in
FOLDER/0, with every METHOD, as they are and with `--set doubles=turns --set epochs=50`, for CIFAR-100 with one thread:

    dsui train --data folder:NAME-draw --method METHOD --seed 0 --out RUN
    dsui evaluate RUN --tasks misclassification,ood --foreign folder:other-classes
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from PIL import Image

from dsui.data.dataset import ImageSet
from dsui.data.registry import load

DRAWS, SEED = 3, 24


class Share(NamedTuple):
    """How many classes of a data set are known and how many foreign, and the photographs of a known class."""

    known: int
    foreign: int
    photographs: int


SHARES = {"cifar100": Share(8, 16, 100), "tiny-imagenet": Share(20, 40, 450)}


def classes_of(draw: int, count: int, share: Share) -> tuple[list[int], list[int]]:
    """The known classes of a draw and the foreign ones, of `count` in all."""
    chosen = Random(f"{SEED} classes {draw}").sample(range(count), share.known + share.foreign)  # noqa: S311
    return chosen[: share.known], chosen[share.known :]


def write(draw: int, name: str, train: ImageSet, test: ImageSet, folder: Path) -> None:
    share = SHARES[name]
    known, foreign = classes_of(draw, len(train.classes), share)
    for label in known:
        own = (train.labels == label).nonzero().flatten().tolist()
        chosen = Random(f"{SEED} photographs {draw} {label}").sample(own, share.photographs)  # noqa: S311
        _save(train, chosen, folder / f"{name}-draw" / "train" / train.classes[label])
    for labels, place in ((known, f"{name}-draw/test"), (foreign, "other-classes")):
        for label in labels:
            own = (test.labels == label).nonzero().flatten().tolist()
            _save(test, own, folder / place / test.classes[label])


def _save(images: ImageSet, indices: list[int], folder: Path) -> None:
    folder.mkdir(parents=True)
    for index, pixels in zip(indices, images.read(torch.tensor(indices)), strict=True):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{index:05d}.png")


def main(root: Path, folder: Path, name: str) -> None:
    train, test = (load(name, split, root) for split in ("train", "test"))
    for draw in range(DRAWS):
        write(draw, name, train, test, folder / str(draw))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
