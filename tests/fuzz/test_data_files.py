"""Published data sets and images, damaged and forged."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from dsui.data.cifar import cifar10
from dsui.data.decode import ImageError, decode_image, read_header
from dsui.data.idx import mnist
from dsui.data.svhn import svhn
from dsui.data.tiny_imagenet import tiny_imagenet
from dsui.errors import DataError
from tests.support.fuzzing import attack, damaged, parametrized
from tests.support.official_files import (
    python2_pickle,
    random_pixels,
    write_cifar10,
    write_idx,
    write_svhn,
    write_tiny_imagenet,
)

KINDS = (
    "AVIF", "BMP", "DDS", "DIB", "GIF", "ICNS", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "QOI",
    "SGI", "SPIDER", "TGA", "TIFF", "WEBP", "XBM",
)  # fmt: skip
OPCODES = tuple(bytes([code]) for code in range(256))


@parametrized(60)
def test_idx(examples: int, tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", "train", random_pixels(2, 28, 28), [3, 4], zipped=False)
    images, labels = (tmp_path / "mnist" / f"train-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    original, zipped = images.read_bytes(), images.with_name(images.name + ".gz")

    def load(content: bytes) -> None:
        images.write_bytes(content)
        mnist(tmp_path, "train")

    def load_zipped(content: bytes) -> None:
        zipped.write_bytes(content)
        mnist(tmp_path, "train")

    attack(load, damaged([original[:40] + bytes(40), labels.read_bytes()]), examples)
    attack(load, damaged([original]), examples)
    images.unlink()
    attack(load_zipped, damaged([gzip.compress(original)]), examples)


@parametrized(120)
def test_mat(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    write_svhn(path, np.zeros((32, 32, 3, 2), dtype=np.uint8), [1, 10])
    packed = path.read_bytes()
    whole = zlib.decompress(packed[136:])
    heads = {whole[:72]: whole[72:]}

    def load(content: bytes) -> None:
        path.write_bytes(content)
        svhn(tmp_path, "test")

    def load_inner(changed: bytes) -> None:
        """The stream is right and what it holds is not."""
        content = zlib.compress(changed + heads[whole[:72]])
        load(packed[:128] + struct.pack("<2I", 15, len(content)) + content + packed[136 + len(content) :])

    attack(load, damaged([packed]), examples)
    attack(load_inner, damaged([whole[:72]]), examples)


@parametrized(200)
def test_cifar(examples: int, tmp_path: Path) -> None:
    write_cifar10(tmp_path, per_batch=1)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    short = python2_pickle({"labels": [0], "data": random_pixels(1, 8), "more": [1, [2], {"a": "b"}]})

    def load(content: bytes) -> None:
        path.write_bytes(content)
        cifar10(tmp_path, "test")

    attack(load, damaged([short, path.read_bytes()], OPCODES), examples)


@parametrized(40)
def test_lists_of_tiny_imagenet(examples: int, tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    folder = tmp_path / "tiny-imagenet-200"
    tokens = (b"..", b"/", b"\x00", b"\n", b"\t", b"\xff", b"/etc/passwd", b"../../x", b"n" * 999)
    for path, split in ((folder / "wnids.txt", "train"), (folder / "val" / "val_annotations.txt", "test")):
        original = path.read_bytes()

        def load(content: bytes, path: Path = path, split: str = split) -> None:
            path.write_bytes(content)
            tiny_imagenet(tmp_path, split)

        attack(load, damaged([original], tokens), examples)
        path.write_bytes(original)


def _pictures() -> dict[str, bytes]:
    """A picture in every format that Pillow can write and that is read."""
    pictures = {}
    noise = Image.fromarray(random_pixels(9, 7, 3))
    for kind in KINDS:
        for mode in ("RGB", "RGBA", "P", "L", "1", "I;16", "F"):
            stream = io.BytesIO()
            try:
                noise.convert("L" if mode == "I;16" else mode).convert(mode).save(stream, kind)
            except (OSError, ValueError, KeyError):  # a build of Pillow without it, or a mode that it does not know
                continue
            pictures[f"{kind} {mode}"] = stream.getvalue()
    return pictures


@parametrized(250)
def test_images(examples: int, tmp_path: Path) -> None:
    path, pictures = tmp_path / "image.png", _pictures()
    assert len(pictures) > 30

    def load(content: bytes) -> None:
        path.write_bytes(content)
        for read in (read_header, lambda file: decode_image(file, 3)):
            try:
                read(path)
            except ImageError as error:
                raise DataError(f"{path} cannot be used ({error}).") from error

    sizes = tuple(struct.pack(order, size) for order in ("<H", ">I") for size in (0, 1, 65535, 9000, 20000))
    attack(load, st.sampled_from(sorted(pictures)).flatmap(lambda name: damaged([pictures[name]], sizes)), examples)
