"""Folders for a small study: do doubles help photographs of one's own that a small net learns from nothing?

    python -m studies.photos_doubles ROOT FOLDER

reads CIFAR-100 below ROOT and makes FOLDER/0, FOLDER/1, ... , one for each draw:

    cifar100-draw/train/CLASS    100 training images of each of 8 classes
    cifar100-draw/test/CLASS     the 100 official test images of each
    other-classes/CLASS          the 100 official test images of each of 16 other classes

The names are alike in all draws, so that a table takes them for runs of one data set. The runs of draw 0 are made in
FOLDER/0, with every METHOD, as they are and with `--set doubles=turns --set epochs=50`, on a CPU with one thread:

    dsui train --data folder:cifar100-draw --method METHOD --seed 0 --out RUN
    dsui evaluate RUN --tasks misclassification,ood --foreign folder:other-classes
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import torch
from PIL import Image

from dsui.data.dataset import ImageSet
from dsui.data.registry import load

DRAWS, KNOWN, FOREIGN, PHOTOGRAPHS = 3, 8, 16, 100
SEED = 24


def classes_of(draw: int, count: int) -> tuple[list[int], list[int]]:
    """The known classes of a draw and the foreign ones, of `count` in all."""
    chosen = Random(f"{SEED} classes {draw}").sample(range(count), KNOWN + FOREIGN)  # noqa: S311
    return chosen[:KNOWN], chosen[KNOWN:]


def write(draw: int, train: ImageSet, test: ImageSet, folder: Path) -> None:
    known, foreign = classes_of(draw, len(train.classes))
    for label in known:
        own = (train.labels == label).nonzero().flatten().tolist()
        chosen = Random(f"{SEED} photographs {draw} {label}").sample(own, PHOTOGRAPHS)  # noqa: S311
        _save(train, chosen, folder / "cifar100-draw" / "train" / train.classes[label])
    for labels, name in ((known, "cifar100-draw/test"), (foreign, "other-classes")):
        for label in labels:
            own = (test.labels == label).nonzero().flatten().tolist()
            _save(test, own, folder / name / test.classes[label])


def _save(images: ImageSet, indices: list[int], folder: Path) -> None:
    folder.mkdir(parents=True)
    for index, pixels in zip(indices, images.read(torch.tensor(indices)), strict=True):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{index:05d}.png")


if __name__ == "__main__":
    own, official = (load("cifar100", split, Path(sys.argv[1])) for split in ("train", "test"))
    for number in range(DRAWS):
        write(number, own, official, Path(sys.argv[2]) / str(number))
