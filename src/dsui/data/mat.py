"""Real numeric arrays of a MATLAB 5 file, read with every length checked against the bytes that are there.

The file begins with 128 bytes: text, then the version 0x0100 and "IM" where numbers are little-endian. Elements follow,
each a tag of two four-byte numbers, type and length, and its data, padded to 8 bytes; data of 1 to 4 bytes stand in the
tag itself, whose upper half of the first number is then the length. A matrix (14) holds four elements: flags with the
class of its numbers, dimensions, name, and the numbers column by column, perhaps in a narrower type than the class. A
compressed element (15, not padded) is a zlib stream of one matrix. ("MAT-File Format", The MathWorks.)

scipy.io reads these files too, but it trusts the types and lengths in them: one wrong byte can end the process.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from dsui.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from numpy.typing import NDArray

HEADER, TAG = 128, 8
LARGEST = 1 << 29
"""Bytes of one array; the larger file of SVHN holds 225 MB."""
MOST_ELEMENTS = 64
MOST_DIMENSIONS = 8
LONGEST_NAME = 63
PEEK = 512
"""Bytes that are enough for flags, dimensions and name."""
INT8, UINT32, INT32, MATRIX, COMPRESSED = 1, 6, 5, 14, 15
TYPES = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
CLASSES = {
    6: "float64", 7: "float32", 8: "int8", 9: "uint8", 10: "int16",
    11: "uint16", 12: "int32", 13: "uint32", 14: "int64", 15: "uint64",
}  # fmt: skip
COMPLEX = 0x800


class MatError(ValueError):
    """Why a file cannot be read as MATLAB 5: a clause."""


class MatArray(NamedTuple):
    """`values` as they are stored, which may be in a narrower type than `kind`, that of the array."""

    kind: np.dtype[np.generic]
    values: NDArray[np.generic]


class _Head(NamedTuple):
    """What a matrix says of itself, and where its numbers begin."""

    name: str
    number_class: int
    shape: tuple[int, ...]
    end: int


def read_mat(path: Path, wanted: Collection[str]) -> dict[str, MatArray]:
    """The arrays of these names; others are passed over. MatError for a damaged file, OSError for one not readable."""
    found: dict[str, MatArray] = {}
    with open_regular(path) as stream:
        header = stream.read(HEADER)
        if len(header) < HEADER or header[124:] != b"\x00\x01IM":
            raise MatError("it does not begin as a little-endian MATLAB 5 file does")
        for _ in range(MOST_ELEMENTS):
            if not (tag := stream.read(TAG)):
                return found
            kind, length = _numbers(tag, 2)
            content = _exactly(stream, length)
            if kind == COMPRESSED:
                matrix = _inflated(content, wanted)
            elif kind == MATRIX:
                matrix = memoryview(content)
            else:
                raise MatError(f"it holds an element of type {kind}")
            if matrix is not None and (head := _head(matrix)).name in wanted:
                if head.name in found:
                    raise MatError(f"it holds {head.name} twice")
                found[head.name] = _array(matrix, head)
    raise MatError(f"it holds more than {MOST_ELEMENTS} elements")


def _exactly(stream: BinaryIO, length: int) -> bytes:
    if length > LARGEST:
        raise MatError(f"an element announces {length:,} bytes, more than {LARGEST:,}")
    content = stream.read(length)
    if len(content) < length:
        raise MatError(f"an element announces {length:,} bytes and {len(content):,} follow")
    return content


def _inflated(content: bytes, wanted: Collection[str]) -> memoryview | None:
    """The matrix in a compressed element; None where its name is not wanted, which the beginning tells."""
    try:
        begin = memoryview(zlib.decompressobj().decompress(content, PEEK))
        kind, length = _numbers(begin, 2)
        if kind != MATRIX or length > LARGEST:
            raise MatError(f"a compressed element holds type {kind} of {length:,} bytes")
        if _head(begin[TAG:]).name not in wanted:
            return None
        stream = zlib.decompressobj()
        whole = stream.decompress(content, TAG + length + 1)  # one more, so that the stream's checksum is compared
    except zlib.error as error:
        raise MatError(f"a compressed element is broken ({error})") from error
    if len(whole) != TAG + length or not stream.eof:
        raise MatError(f"a compressed element announces {length:,} bytes and holds another number of them")
    return memoryview(whole)[TAG:]


def _head(matrix: memoryview) -> _Head:
    kind, flags, end = _element(matrix, 0)
    if kind != UINT32 or len(flags) != TAG:
        raise MatError("an array has no flags")
    number_class = flags[0]
    if _numbers(flags, 1)[0] & COMPLEX:
        raise MatError("an array holds complex numbers")
    kind, dimensions, end = _element(matrix, end)
    count = len(dimensions) // 4
    if kind != INT32 or not 2 <= count <= MOST_DIMENSIONS or len(dimensions) != 4 * count:
        raise MatError("an array has no dimensions")
    shape = struct.unpack(f"<{count}i", dimensions)
    if min(shape) < 0:
        raise MatError("an array has a negative dimension")
    kind, name, end = _element(matrix, end)
    if kind != INT8 or len(name) > LONGEST_NAME:
        raise MatError("an array has no name")
    return _Head(bytes(name).decode("latin-1"), number_class, shape, end)


def _array(matrix: memoryview, head: _Head) -> MatArray:
    """The numbers of a matrix, without a copy."""
    stored, content, _ = _element(matrix, head.end)
    if head.number_class not in CLASSES or stored not in TYPES:
        raise MatError(f"{head.name} is of class {head.number_class}, stored as type {stored}, and not numeric")
    kind = np.dtype(TYPES[stored])
    expected = math.prod(head.shape) * kind.itemsize
    if len(content) != expected:
        raise MatError(f"{head.name} needs {expected:,} bytes and has {len(content):,}")
    values = np.frombuffer(content, dtype=kind).reshape(head.shape, order="F")
    return MatArray(np.dtype(CLASSES[head.number_class]), values)


def _element(matrix: memoryview, start: int) -> tuple[int, memoryview, int]:
    """The type and the data of the element at `start`, and where the next one begins."""
    first, length = _numbers(matrix[start:], 2)
    if small := first >> 16:
        begin, kind, length, end = start + 4, first & 0xFFFF, small, start + TAG
        if small > 4:
            raise MatError(f"an element of {small:,} bytes stands in a tag, which holds 4")
    else:
        begin, kind = start + TAG, first
        end = begin + -(-length // TAG) * TAG
    if begin + length > len(matrix):
        raise MatError(f"an element announces {length:,} bytes, more than there are")
    return kind, matrix[begin : begin + length], end


def _numbers(content: bytes | memoryview, count: int) -> tuple[int, ...]:
    if len(content) < 4 * count:
        raise MatError("it ends within an element")
    return struct.unpack_from(f"<{count}I", content)
