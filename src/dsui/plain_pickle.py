"""Pickles from outside, within limits: a pickle can name one value many times, so that 250 bytes hold a tuple of 10^30
parts, on whose hash or text Python works for ever.

So keys of dictionaries are texts, bytes or whole numbers, tuples are short and not deep, and opcodes that no file here
needs are refused. This uses the unpickler written in Python, because the one in C reserves as much memory as a forged
file asks for. What a pickle may call is not decided here, but by the class that reads the file.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any

LONGEST_TUPLE, DEEPEST_TUPLE = 16, 3
"""The state of an array is a tuple of five, with its shape and its type in it."""
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
TUPLES = (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)


class BoundedUnpickler(pickle._Unpickler):
    """An unpickler that keeps the limits; a subclass says which names stand for what, and what may take a state."""

    def takes_state(self, value: object) -> bool:
        """Whether a pickle may set the state of this value."""
        del value
        return False

    def check(self, opcode: bytes, stack: list[object]) -> None:
        """Raise unless the opcode may be applied to what lies on the stack since the last mark."""
        keys = {pickle.SETITEM: stack[-2:-1], pickle.SETITEMS: stack[::2], pickle.DICT: stack[::2]}.get(opcode, [])
        if not all(isinstance(key, str | bytes | int) for key in keys):
            raise pickle.UnpicklingError("it holds a dictionary whose keys are not texts")
        if opcode == pickle.BUILD and not self.takes_state(stack[-2]):
            raise pickle.UnpicklingError("it sets the state of something that has none")


def handlers(opcodes: Iterable[bytes]) -> dict[int, Callable[[Any], None]]:
    """What an unpickler does for these opcodes, and for no others."""
    return {opcode[0]: _handler(opcode) for opcode in opcodes}


def _handler(opcode: bytes) -> Callable[[Any], None]:
    plain = pickle._Unpickler.dispatch[opcode[0]]

    def handle(unpickler: Any) -> None:
        unpickler.check(opcode, unpickler.stack)
        plain(unpickler)
        if opcode in TUPLES and _depth(unpickler.stack[-1]) > DEEPEST_TUPLE:
            raise pickle.UnpicklingError("it holds a long tuple, or tuples in tuples in tuples")

    return handle


def _depth(value: object) -> int:
    """How deep tuples nest in a value, of which what it holds was checked before; a long one counts as too deep."""
    if not isinstance(value, tuple):
        return 0
    return DEEPEST_TUPLE + 1 if len(value) > LONGEST_TUPLE else 1 + max(map(_depth, value), default=0)


class _Nothing:
    """Stands for whatever a pickle asks to make."""

    def __init__(self, *_: object) -> None:
        """Takes any arguments, and below any contents."""

    def __setstate__(self, state: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...


class _Rehearsal(BoundedUnpickler):
    dispatch = handlers((*OPCODES, pickle.BINFLOAT, pickle.BINPERSID))

    def find_class(self, module: str, name: str) -> object:
        del module, name
        return _Nothing

    def persistent_load(self, pid: object) -> object:
        del pid
        return _Nothing()

    def takes_state(self, value: object) -> bool:
        return isinstance(value, _Nothing)


def check_pickle(content: bytes) -> None:
    """Raise where a pickle of plain values and tensors is not within the limits; nothing that it names is made."""
    _Rehearsal(io.BytesIO(content), encoding="bytes").load()
