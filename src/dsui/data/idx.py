"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): 28x28 grey images in 10 classes.

On disk, as published: four idx files, plain or with `.gz`, in ROOT/mnist or ROOT/fashion-mnist; the folders
ROOT/MNIST/raw and ROOT/FashionMNIST/raw of torchvision serve as well. An idx file of bytes is big-endian: 0, 0, 8 and
the number of dimensions in a byte each, every dimension in four bytes, then the values.
"""

from __future__ import annotations

import gzip
import math
import struct
from typing import TYPE_CHECKING

import numpy as np
import torch

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, RemoteFile, Split, damaged_file, missing_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIDE = 28
PREFIX = {"train": "train", "test": "t10k"}
FOLDERS = {"mnist": ("mnist", "MNIST/raw"), "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw")}
DIGITS = tuple("0123456789")
GARMENTS = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def mnist(root: Path, split: str) -> MemorySet:
    return _load("mnist", DIGITS, root, split)


def fashion_mnist(root: Path, split: str) -> MemorySet:
    return _load("fashion-mnist", GARMENTS, root, split)


def _load(name: str, classes: tuple[str, ...], root: Path, split: str) -> MemorySet:
    images_file = _find(root, f"{PREFIX[split]}-images-idx3-ubyte", name)
    labels_file = _find(root, f"{PREFIX[split]}-labels-idx1-ubyte", name)
    images, labels = read_idx(images_file, 3, name), read_idx(labels_file, 1, name)
    if images.shape[1:] != (SIDE, SIDE):
        raise damaged_file(images_file, f"its images are {images.shape[1]}x{images.shape[2]}, not {SIDE}x{SIDE}", name)
    if len(labels) != len(images):
        raise damaged_file(labels_file, f"it holds {len(labels)} labels for {len(images)} images", name)
    if (labels >= len(classes)).any():
        raise damaged_file(labels_file, f"a label lies outside 0..{len(classes) - 1}", name)
    pixels = torch.from_numpy(images).unsqueeze(1)
    return MemorySet(name, classes, pixels, torch.from_numpy(labels.astype(np.int64)))


def _find(root: Path, file: str, name: str) -> Path:
    candidates = [root / folder / f"{file}{end}" for folder in FOLDERS[name] for end in ("", ".gz")]
    for path in candidates:
        if path.is_file():
            return path
    raise missing_file(candidates[1], name)


def read_idx(path: Path, dimensions: int, name: str) -> NDArray[np.uint8]:
    """The bytes of an idx file, shaped as its header says."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            magic, *shape = struct.unpack(f">{1 + dimensions}I", stream.read(4 * (1 + dimensions)))
            if magic != 0x0800 + dimensions:
                raise ValueError(f"it begins with {magic:#010x}, not {0x0800 + dimensions:#010x}")
            expected = math.prod(shape)
            values = stream.read(expected + 1)
    except Exception as error:  # gzip, zlib, struct and a header that asks for more memory than there is
        raise damaged_file(path, f"it cannot be read as idx ({error})", name) from error
    if len(values) != expected:
        found = f"only {len(values)}" if len(values) < expected else "more"
        raise damaged_file(path, f"its header announces {expected} bytes and {found} follow", name)
    return np.frombuffer(bytearray(values), dtype=np.uint8).reshape(shape)


def _splits(name: str, train: float, test: float) -> dict[str, Split]:
    def traces(split: str) -> tuple[str, ...]:
        return tuple(f"{folder}/{PREFIX[split]}-*-ubyte{end}" for folder in FOLDERS[name] for end in ("", ".gz"))

    return {"train": Split(60_000, (train,), traces("train")), "test": Split(10_000, (test,), traces("test"))}


def _files(folder: str, hosts: tuple[str, ...], md5: dict[str, str]) -> tuple[RemoteFile, ...]:
    names = [f"{prefix}-{kind}-ubyte.gz" for prefix in PREFIX.values() for kind in ("images-idx3", "labels-idx1")]
    return tuple(
        RemoteFile(name, tuple(host + name for host in hosts), (f"{folder}/{name}",), b"\x1f\x8b", md5=md5.get(name))
        for name in names
    )


# Train means: as commonly published. Test means: measured.
MNIST = DatasetInfo(
    name="mnist",
    load=mnist,
    classes=10,
    shape=(1, SIDE, SIDE),
    splits=_splits("mnist", train=0.1307, test=0.1325),
    page="http://yann.lecun.com/exdb/mnist",
    licence="none stated",
    folder="mnist",
    files=_files(
        "mnist",
        (
            "http://yann.lecun.com/exdb/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        md5={},  # the page states none
    ),
)
FASHION_MNIST = DatasetInfo(
    name="fashion-mnist",
    load=fashion_mnist,
    classes=10,
    shape=(1, SIDE, SIDE),
    splits=_splits("fashion-mnist", train=0.2860, test=0.2868),
    page="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    folder="fashion-mnist",
    files=_files(
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        md5={  # as stated in the README of the page
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
)
