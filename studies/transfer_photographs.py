"""Folders of photographs for the transfer study, linked out of Tiny ImageNet as it unpacks.

    python -m studies.transfer_photographs ROOT FOLDER

makes FOLDER/network, FOLDER/selection and FOLDER/test, one for each share of the classes (`studies.transfer_draws`),
with the 500 training images of a class in train/ID and its 50 validation images in test/ID.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from studies.transfer_draws import shares


def link(root: Path, folder: Path) -> None:
    official = root / "tiny-imagenet-200"
    ids = sorted((official / "wnids.txt").read_text().split())
    test: dict[str, list[Path]] = {name: [] for name in ids}
    for line in (official / "val" / "val_annotations.txt").read_text().splitlines():
        file, name, *_ = line.split("\t")
        test[name].append(official / "val" / "images" / file)
    for share, classes in zip(("network", "selection", "test"), shares(), strict=True):
        for name in (ids[number] for number in classes):
            _link_all(sorted((official / "train" / name / "images").iterdir()), folder / share / "train" / name)
            _link_all(test[name], folder / share / "test" / name)


def _link_all(files: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in files:
        os.link(file, folder / file.name)


if __name__ == "__main__":
    link(Path(sys.argv[1]), Path(sys.argv[2]))
