"""Small data sets written to disk exactly as their publishers do, for the tests of loaders, check and commands."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from scipy.io import savemat

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
WNIDS = ["n02124075", "n01443537", "n04067472"]


def python2_pickle(content: object) -> bytes:
    """Protocol 2 as Python 2 wrote it: text and bytes alike are the opcode BINSTRING."""
    return b"\x80\x02" + _opcodes(content) + b"."


def _opcodes(value: object) -> bytes:
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return b"T" + struct.pack("<i", len(raw)) + raw
    if isinstance(value, list):
        return b"](" + b"".join(map(_opcodes, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_opcodes(key) + _opcodes(item) for key, item in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + _opcodes("b") + b"tR"
    kind = b"cnumpy\ndtype\n(" + _opcodes(value.dtype.str[1:]) + b"K\x00K\x01tR"
    kind_state = b"(K\x03" + _opcodes(value.dtype.str[0]) + b"NNN" + _opcodes(-1) + _opcodes(-1) + b"K\x00tb"
    shape = b"(" + b"".join(map(_opcodes, value.shape)) + b"t"
    return empty + b"(K\x01" + shape + kind + kind_state + b"\x89" + _opcodes(value.tobytes()) + b"tb"


def random_pixels(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_cifar10(root: Path, per_batch: int = 4) -> NDArray[np.uint8]:
    """Labels count 0, 1, 2, ...; the pixels of the five training batches [5 * per_batch, 3072]."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{batch}" for batch in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        labels = [index % 10 for index in range(per_batch)]
        pixels = random_pixels(per_batch, 3072, seed=seed)
        content = {"batch_label": name, "labels": labels, "data": pixels, "filenames": ["x.png"] * per_batch}
        (folder / name).write_bytes(python2_pickle(content))
    meta = {"num_cases_per_batch": per_batch, "label_names": CIFAR10_NAMES, "num_vis": 3072}
    (folder / "batches.meta").write_bytes(python2_pickle(meta))
    return np.concatenate([random_pixels(per_batch, 3072, seed=seed) for seed in range(5)])


def write_cifar100(root: Path, count: int = 6) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "test")):
        fine = [99 - index for index in range(count)]
        content = {"data": random_pixels(count, 3072, seed=seed), "fine_labels": fine, "coarse_labels": [0] * count}
        (folder / name).write_bytes(python2_pickle(content))
    names = [f"fine{index:02d}" for index in range(100)]
    (folder / "meta").write_bytes(python2_pickle({"fine_label_names": names, "coarse_label_names": ["coarse"]}))


def write_svhn(path: Path, pixels: NDArray[Any], labels: list[int]) -> None:
    savemat(path, {"X": pixels, "y": np.array(labels, dtype=np.uint8)[:, None]}, do_compression=True)


def idx_bytes(values: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape) + values.tobytes()


def write_idx(folder: Path, prefix: str, images: NDArray[np.uint8], labels: list[int], zipped: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    contents = {f"{prefix}-images-idx3-ubyte": images, f"{prefix}-labels-idx1-ubyte": np.array(labels, np.uint8)}
    for name, values in contents.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(values)))
        else:
            (folder / name).write_bytes(idx_bytes(values))


def write_tiny_imagenet(root: Path) -> None:
    """Three classes, two training images and one validation image of each; the last validation image is grey."""
    folder = root / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text("n01443537\tgoldfish, Carassius auratus\n")
    lines = []
    for index, wnid in enumerate(WNIDS):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for number in range(2):
            plain_jpeg(images / f"{wnid}_{number}.JPEG", 40 * index + 20 * number)
        plain_jpeg(folder / "val" / "images" / f"val_{index}.JPEG", 100 + index, "L" if index == 2 else "RGB")
        lines.append(f"val_{index}.JPEG\t{wnid}\t0\t0\t63\t63")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def plain_jpeg(path: Path, level: int, mode: str = "RGB", side: int = 64) -> None:
    Image.new(mode, (side, side), level if mode == "L" else (level, level, level)).save(path, "JPEG", quality=95)
