"""Read a pickle of plain values and byte arrays without running the code that a pickle can ask for.

The CIFAR files are pickles, and a pickle can call any function that it names. Here every allowed name stands for a
harmless function below; any other name is refused. `dsui.plain_pickle` keeps the size of what a small file can hold in
limits.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING

import numpy as np

from dsui.errors import DataError
from dsui.excerpt import excerpt, shorten
from dsui.plain_pickle import OPCODES, BoundedUnpickler, handlers
from dsui.regular_file import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


LARGEST = 1 << 28
"""Bytes of a file; the largest of CIFAR holds 155 MB."""


class _ByteType:
    """Stands for numpy.dtype."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it holds an array of type {excerpt(code)}")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment mean nothing for bytes."""


class ByteArray:
    """Stands for numpy.ndarray; its `values` are uint8."""

    def __init__(self, *_: object) -> None:
        self.values: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _ByteType, bool, bytes]) -> None:
        _version, shape, kind, columns_first, content = state
        if not isinstance(kind, _ByteType) or not isinstance(content, bytes) or columns_first:
            raise pickle.UnpicklingError("it holds an array that is not of bytes, row by row")
        self.values = np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape)


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into an old pickle."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it holds text in {excerpt(encoding)}")
    return text.encode("latin-1")


def _empty_bytes() -> bytes:
    return b""


ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): ByteArray,
    ("numpy", "ndarray"): None,  # only an argument of the former
    ("numpy", "dtype"): _ByteType,
    ("_codecs", "encode"): _latin1,
    ("__builtin__", "bytes"): _empty_bytes,
}


class _Restricted(BoundedUnpickler):
    dispatch = handlers(OPCODES)

    def __init__(self, path: Path) -> None:
        super().__init__(io.BytesIO(read_regular(path, LARGEST)), encoding="bytes")
        self.path = path

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in ALLOWED:
            raise DataError(
                f"{self.path} asks to run {shorten(f'{module}.{name}')}, which no CIFAR file needs; "
                "delete it and get the file from its official source."
            )
        return ALLOWED[module, name]

    def takes_state(self, value: object) -> bool:
        return isinstance(value, ByteArray | _ByteType)


def unpickle(path: Path) -> object:
    """The object in `path`. DataError for a forbidden name, OSError where it cannot be read; any other error means a
    damaged file."""
    return _Restricted(path).load()
