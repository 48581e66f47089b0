"""Read a pickle of plain values and byte arrays without running the code that a pickle can ask for.

The CIFAR files are pickles, and a pickle can call any function that it names. Here every allowed name stands for a
harmless function below; any other name is refused. This uses the unpickler written in Python, because the one in C
reserves as much memory as a forged file asks for.

A pickle can also name one value many times, so that 250 bytes hold a tuple of 10^30 parts, on whose hash or text Python
works for ever. So keys are text or bytes, tuples are short and not deep, and opcodes that no such file needs are
refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dsui.errors import DataError
from dsui.excerpt import excerpt, shorten
from dsui.regular_file import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


LARGEST = 1 << 28
"""Bytes of a file; the largest of CIFAR holds 155 MB."""
LONGEST_TUPLE, DEEPEST_TUPLE = 16, 3
"""The state of an array is a tuple of five, with its shape and its type in it."""


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


OPCODES = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT,
    pickle.MEMOIZE, pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.STRING,
    pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.UNICODE, pickle.BINUNICODE, pickle.SHORT_BINUNICODE,
    pickle.BINUNICODE8, pickle.BINBYTES, pickle.BINBYTES8, pickle.SHORT_BINBYTES, pickle.EMPTY_LIST, pickle.LIST,
    pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.DICT, pickle.SETITEM, pickle.SETITEMS,
    pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.GLOBAL,
    pickle.STACK_GLOBAL, pickle.REDUCE, pickle.BUILD,
)  # fmt: skip
"""Numbers, texts, bytes, lists, tuples, dictionaries, and the calls that make an array."""


def _check_keys(keys: list[object]) -> None:
    if not all(isinstance(key, str | bytes) for key in keys):
        raise pickle.UnpicklingError("it holds a dictionary whose keys are not texts")


def _check_array(value: object) -> None:
    if not isinstance(value, ByteArray | _ByteType):
        raise pickle.UnpicklingError("it sets the state of something that is no array")


def _check_depth(value: object) -> None:
    if _depth(value) > DEEPEST_TUPLE:
        raise pickle.UnpicklingError("it holds a long tuple, or tuples in tuples in tuples")


def _depth(value: object) -> int:
    """How deep tuples nest in a value, of which what it holds was checked before; a long one counts as too deep."""
    if not isinstance(value, tuple):
        return 0
    return DEEPEST_TUPLE + 1 if len(value) > LONGEST_TUPLE else 1 + max(map(_depth, value), default=0)


BEFORE: dict[bytes, Callable[[list[object]], None]] = {
    pickle.SETITEM: lambda stack: _check_keys(stack[-2:-1]),
    pickle.SETITEMS: lambda stack: _check_keys(stack[::2]),
    pickle.DICT: lambda stack: _check_keys(stack[::2]),
    pickle.BUILD: lambda stack: _check_array(stack[-2]),
}
"""What is checked of the unpickler's stack, which begins at the last mark, before these opcodes."""
MAKE_TUPLES = {pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3}


def _handler(opcode: bytes) -> Callable[[Any], None]:
    plain, check = pickle._Unpickler.dispatch[opcode[0]], BEFORE.get(opcode)

    def handle(unpickler: Any) -> None:
        if check is not None:
            check(unpickler.stack)
        plain(unpickler)
        if opcode in MAKE_TUPLES:
            _check_depth(unpickler.stack[-1])

    return handle


class _Restricted(pickle._Unpickler):
    dispatch = {opcode[0]: _handler(opcode) for opcode in OPCODES}  # noqa: RUF012 - as in the base

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


def unpickle(path: Path) -> object:
    """The object in `path`. DataError for a forbidden name, OSError where it cannot be read; any other error means a
    damaged file."""
    return _Restricted(path).load()
