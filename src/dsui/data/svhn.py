"""SVHN, cropped digits (Netzer et al., 2011): 32x32 colour house numbers in 10 classes.

On disk, as published: ROOT/train_32x32.mat and ROOT/test_32x32.mat, MATLAB 5 files with X, uint8 [32, 32, 3, n] in the
order row, column, channel, and y, [n, 1] with labels 1..10, where 10 stands for the digit 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, RemoteFile, Split, damaged_file, missing_file

if TYPE_CHECKING:
    from pathlib import Path

NAME = "svhn"
SIDE = 32
CLASSES = tuple("0123456789")


def svhn(root: Path, split: str) -> MemorySet:
    from scipy.io import loadmat  # slow to load

    path = root / f"{split}_32x32.mat"
    if not path.is_file():
        raise missing_file(path, NAME)
    try:
        content = loadmat(path, variable_names=("X", "y"))
        pixels, labels = content["X"], content["y"].reshape(-1)
    except Exception as error:  # scipy fails on a broken file in as many ways as it has fields
        raise damaged_file(path, f"it cannot be read as a MATLAB 5 file with X and y ({error})", NAME) from error
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (SIDE, SIDE, 3):
        raise damaged_file(path, f"X is {pixels.dtype} {list(pixels.shape)}, not uint8 [32, 32, 3, n]", NAME)
    if len(labels) != pixels.shape[3]:
        raise damaged_file(path, f"it holds {pixels.shape[3]} images and {len(labels)} labels", NAME)
    if not np.isin(labels, range(1, 11)).all():
        raise damaged_file(path, "a label lies outside 1..10", NAME)
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)))
    return MemorySet(NAME, CLASSES, images, torch.from_numpy(labels.astype(np.int64) % 10))


def _file(name: str) -> RemoteFile:
    """No mirror is known to carry the same bytes, and the publisher states no checksum."""
    addresses = (f"http://ufldl.stanford.edu/housenumbers/{name}",)
    return RemoteFile(name, addresses, yields=(name,), begins=b"MATLAB 5.0 MAT-file")


# Train means: as commonly published. Test means: measured.
SVHN = DatasetInfo(
    name=NAME,
    load=svhn,
    classes=10,
    shape=(3, SIDE, SIDE),
    splits={
        "train": Split(73_257, (0.4377, 0.4438, 0.4728), ("train_32x32.mat",)),
        "test": Split(26_032, (0.4524, 0.4525, 0.4690), ("test_32x32.mat",)),
    },
    page="http://ufldl.stanford.edu/housenumbers",
    licence="non-commercial",
    files=(_file("train_32x32.mat"), _file("test_32x32.mat")),
)
