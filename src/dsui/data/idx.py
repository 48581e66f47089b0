"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): 28x28 grey images in 10 classes.

On disk, as published: four idx files, plain or with `.gz`, in ROOT/mnist or ROOT/fashion-mnist; the folders
ROOT/MNIST/raw and ROOT/FashionMNIST/raw of torchvision serve as well. An idx file of bytes is big-endian: 0, 0, 8 and
the number of dimensions in a byte each, every dimension in four bytes, then the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, RemoteFile, Split, damaged_file, missing_file, unreadable_file
from dsui.regular_file import open_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIDE = 28
LARGEST = 1 << 27
"""Bytes of a file, unpacked or not; the largest holds 47 MB of pixels."""
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
    images, labels = read_idx(images_file, (SIDE, SIDE), name), read_idx(labels_file, (), name)
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


def read_idx(path: Path, sides: tuple[int, ...], name: str) -> NDArray[np.uint8]:
    """The bytes of an idx file, [n, *sides]; the header is checked before what it announces is read."""
    try:
        with open_regular(path, LARGEST) as file, gzip.open(file) if path.suffix == ".gz" else file as stream:
            magic, count, *found = struct.unpack(f">{2 + len(sides)}I", stream.read(4 * (2 + len(sides))))
            if magic != 0x0801 + len(sides):
                raise ValueError(f"it begins with {magic:#010x}, not {0x0801 + len(sides):#010x}")
            if tuple(found) != sides:
                raise ValueError(f"its images are {'x'.join(map(str, found))}, not {'x'.join(map(str, sides))}")
            expected = count * math.prod(sides)
            if expected > LARGEST:
                raise ValueError(f"its header announces {expected:,} bytes, more than {LARGEST:,}")
            values = stream.read(expected + 1)
    except OSError as error:
        if error.errno:
            raise unreadable_file(path, error) from error
        raise damaged_file(path, f"it cannot be read as idx ({error})", name) from error
    except (ValueError, EOFError, struct.error, zlib.error) as error:
        raise damaged_file(path, f"it cannot be read as idx ({error})", name) from error
    if len(values) != expected:
        follow = f"only {len(values)}" if len(values) < expected else "more"
        raise damaged_file(path, f"its header announces {expected} bytes and {follow} follow", name)
    return np.frombuffer(bytearray(values), dtype=np.uint8).reshape(count, *sides)


def _splits(name: str, train: float, test: float) -> dict[str, Split]:
    def traces(split: str) -> tuple[str, ...]:
        return tuple(f"{folder}/{PREFIX[split]}-*-ubyte{end}" for folder in FOLDERS[name] for end in ("", ".gz"))

    return {"train": Split(60_000, (train,), traces("train")), "test": Split(10_000, (test,), traces("test"))}


def _files(folder: str, hosts: tuple[str, ...], published: dict[str, tuple[str, int]]) -> tuple[RemoteFile, ...]:
    """`published`: the SHA-256 and the size of each file."""
    return tuple(
        RemoteFile(
            name,
            tuple(host + name for host in hosts),
            (f"{folder}/{name}",),
            b"\x1f\x8b",
            checksum=f"sha256:{sha256}",
            largest=size,
        )
        for name, (sha256, size) in published.items()
    )


# Train means: as commonly published. Test means: measured. Checksums and sizes: those of TensorFlow Datasets
# (url_checksums/mnist.txt and fashion_mnist.txt).
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
        {
            "train-images-idx3-ubyte.gz": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9_912_422,
            ),
            "train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
            "t10k-images-idx3-ubyte.gz": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1_648_877,
            ),
            "t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
        },
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
        {
            "train-images-idx3-ubyte.gz": (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26_421_880,
            ),
            "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
            "t10k-images-idx3-ubyte.gz": (
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4_422_102,
            ),
            "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
        },
    ),
)
