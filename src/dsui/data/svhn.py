"""SVHN, cropped digits (Netzer et al., 2011): 32x32 colour house numbers in 10 classes.

On disk, as published: ROOT/train_32x32.mat and ROOT/test_32x32.mat, MATLAB 5 files with X, uint8 [32, 32, 3, n] in the
order row, column, channel, and y, [n, 1] with labels 1..10, where 10 stands for the digit 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, RemoteFile, Split, damaged_file, missing_file, unreadable_file
from dsui.data.mat import MatError, read_mat

if TYPE_CHECKING:
    from pathlib import Path

NAME = "svhn"
SIDE = 32
CLASSES = tuple("0123456789")


def svhn(root: Path, split: str) -> MemorySet:
    path = root / f"{split}_32x32.mat"
    if not path.is_file():
        raise missing_file(path, NAME)
    try:
        content = read_mat(path, ("X", "y"))
    except MatError as error:
        raise damaged_file(path, f"it cannot be read as a MATLAB 5 file with X and y ({error})", NAME) from error
    except OSError as error:
        raise unreadable_file(path, error) from error
    if absent := [name for name in ("X", "y") if name not in content]:
        raise damaged_file(path, f"it holds no {' and no '.join(absent)}", NAME)
    pixels, labels = content["X"].values, content["y"].values.reshape(-1)
    if content["X"].kind != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (SIDE, SIDE, 3):
        raise damaged_file(path, f"X is {content['X'].kind} {list(pixels.shape)}, not uint8 [32, 32, 3, n]", NAME)
    if pixels.dtype != np.uint8:
        raise damaged_file(path, f"X is stored as {pixels.dtype}", NAME)
    if len(labels) != pixels.shape[3]:
        raise damaged_file(path, f"it holds {pixels.shape[3]} images and {len(labels)} labels", NAME)
    if not np.isin(labels, range(1, 11)).all():
        raise damaged_file(path, "a label lies outside 1..10", NAME)
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)))
    return MemorySet(NAME, CLASSES, images, torch.from_numpy(labels.astype(np.int64) % 10))


def _file(name: str, sha256: str, size: int) -> RemoteFile:
    """The source is without encryption, so the checksum alone proves the bytes. No mirror is known to carry them."""
    addresses = (f"http://ufldl.stanford.edu/housenumbers/{name}",)
    begins = b"MATLAB 5.0 MAT-file"
    return RemoteFile(name, addresses, yields=(name,), begins=begins, checksum=f"sha256:{sha256}", largest=size)


# Train means: as commonly published. Test means: measured. Checksums and sizes: those of TensorFlow Datasets
# (url_checksums/svhn_cropped.txt).
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
    files=(
        _file("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182_040_794),
        _file("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64_275_384),
    ),
)
