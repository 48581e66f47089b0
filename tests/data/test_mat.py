"""MATLAB 5 files as scipy writes them; and every single wrong byte is an error of one sentence, or does no harm."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from dsui.data import mat
from dsui.data.mat import MatError, read_mat
from dsui.data.svhn import svhn
from dsui.errors import DataError
from tests.support.official_files import random_pixels, write_svhn

ARRAYS = {
    "X": random_pixels(32, 32, 3, 2),
    "y": np.array([[3], [10]], dtype=np.uint8),
    "wide": np.arange(6.0).reshape(2, 3),
    "single": np.array([[1.5]], dtype=np.float32),
    "long": np.array([[-(2**40)]]),
    "a_name_that_does_not_fit_into_a_tag": np.array([[7]], dtype=np.int16),
    "empty": np.zeros((0, 3)),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_that_scipy_reads(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {**ARRAYS, "text": "not read", "cells": np.array([1, "x"], dtype=object)}, do_compression=compressed)
    expected = loadmat(path)
    found = read_mat(path, tuple(ARRAYS))
    assert found.keys() == ARRAYS.keys()
    for name, array in found.items():
        assert np.array_equal(array.values, expected[name])
        assert array.kind == expected[name].dtype


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<2I", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(
    number_class: int, shape: tuple[int, ...], stored: int, content: bytes, flags: int = 0, name: bytes = b"y"
) -> bytes:
    whole = element(6, bytes([number_class, flags, 0, 0]) + bytes(4))
    whole += element(5, struct.pack(f"<{len(shape)}i", *shape)) + element(1, name) + element(stored, content)
    return element(14, whole)


def written(path: Path, *elements: bytes) -> Path:
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements))
    return path


def test_numbers_may_be_stored_in_a_narrower_type_than_their_class(tmp_path: Path) -> None:
    (array,) = read_mat(written(tmp_path / "a.mat", matrix(6, (3, 1), 2, b"\x01\x02\x0a")), ("y",)).values()
    assert array.kind == np.float64
    assert array.values.tolist() == [[1], [2], [10]]


@pytest.mark.parametrize(
    ("elements", "why"),
    [
        ([matrix(6, (3, 1), 2, b"\x01\x02")], "y needs 3 bytes and has 2"),
        ([matrix(6, (2**20, 2**20), 2, b"\x01")], "y needs 1,099,511,627,776 bytes and has 1"),
        ([matrix(6, (-1, 1), 2, b"")], "a negative dimension"),
        ([matrix(6, (1,) * 9, 2, b"\x01")], "no dimensions"),
        ([matrix(4, (1, 1), 2, b"\x01")], "y is of class 4, stored as type 2, and not numeric"),
        ([matrix(6, (1, 1), 200, b"\x01")], "y is of class 6, stored as type 200, and not numeric"),
        ([matrix(6, (1, 1), 2, b"\x01", flags=8)], "complex numbers"),
        ([matrix(6, (1, 1), 2, b"\x01", name=b"n" * 64)], "no name"),
        ([matrix(6, (1, 1), 2, b"\x01")] * 2, "it holds y twice"),
        ([matrix(6, (1, 1), 2, b"\x01", name=b"o")] * 70, "more than 64 elements"),
        ([struct.pack("<2I", 14, 2**31)], "an element announces 2,147,483,648 bytes, more than"),
        ([struct.pack("<2I", 14, 100)], "an element announces 100 bytes and 0 follow"),
        ([element(14, b"")], "it ends within an element"),
        ([element(14, struct.pack("<2I", (5 << 16) + 6, 0))], "an element of 5 bytes stands in a tag"),
        ([b"\x0e\x00\x00"], "it ends within an element"),
        ([element(99, b"")], "an element of type 99"),
        ([struct.pack("<2I", 15, 4) + b"abcd"], "a compressed element is broken"),
    ],
)
def test_a_length_or_type_that_cannot_be_is_told(tmp_path: Path, elements: list[bytes], why: str) -> None:
    with pytest.raises(MatError, match=why):
        read_mat(written(tmp_path / "a.mat", *elements), ("y",))


@pytest.mark.parametrize("length", [None, 10**9, 3])
def test_a_stream_of_zeros_is_not_unpacked(tmp_path: Path, length: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mat, "LARGEST", 1 << 20)
    bomb = matrix(9, (1, 1 << 22), 2, bytes(1 << 22), name=b"X")
    if length is not None:
        bomb = struct.pack("<2I", 14, length) + bomb[8:]
    packed = zlib.compress(bomb)
    path = written(tmp_path / "a.mat", struct.pack("<2I", 15, len(packed)), packed)
    with pytest.raises(MatError, match=r"a compressed element (holds type 14 of|announces 3)"):
        read_mat(path, ("X",))


@pytest.mark.parametrize("header", [b"", b"MATLAB", b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"])
def test_other_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.mat").write_bytes(header)
    with pytest.raises(MatError, match="it does not begin as a little-endian MATLAB 5 file does"):
        read_mat(tmp_path / "a.mat", ("y",))


def test_no_single_wrong_byte_goes_further_than_one_sentence(tmp_path: Path) -> None:
    """scipy's reader ends the process by a signal for some of these files."""
    path, pixels = tmp_path / "test_32x32.mat", np.zeros((32, 32, 3, 2), dtype=np.uint8)
    write_svhn(path, pixels, [1, 10])
    right = path.read_bytes()
    assert len(right) < 400
    read = 0
    for place in range(len(right)):
        for value in {0, 1, 255, right[place] ^ 1, right[place] ^ 128} - {right[place]}:
            path.write_bytes(right[:place] + bytes([value]) + right[place + 1 :])
            try:
                images = svhn(tmp_path, "test")
            except DataError:
                continue
            assert images.labels.tolist() == [1, 0]
            assert not images.images.any()
            read += 1
    assert read > 500  # the text at the beginning may be any


def test_no_wrong_byte_in_an_uncompressed_head_goes_further(tmp_path: Path) -> None:
    path, pixels = tmp_path / "test_32x32.mat", random_pixels(32, 32, 3, 1)
    savemat(path, {"y": np.array([[3]], dtype=np.uint8), "X": pixels})
    right = path.read_bytes()
    for place in range(128, len(right) - pixels.size):
        for value in {0, 255, right[place] ^ 1, right[place] ^ 64} - {right[place]}:
            path.write_bytes(right[:place] + bytes([value]) + right[place + 1 :])
            try:
                images = svhn(tmp_path, "test")
            except DataError:
                continue
            assert images.shape == (3, 32, 32)
            assert np.array_equal(images.images[0].numpy(), pixels[..., 0].transpose(2, 0, 1))


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.mat")
    with pytest.raises(OSError, match="it is a pipe and not a file"):
        read_mat(tmp_path / "a.mat", ("X",))
