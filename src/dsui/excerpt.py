"""Values from outside in messages: shortened before they are printed.

A file of a few hundred bytes can hold a value whose `repr` fills the memory: a list that names another list ten times,
ten levels deep. So a message never contains `repr(value)` of such a value, it contains `excerpt(value)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

SHOWN = 60
"""Characters of a value in a message."""
REASON = 200
"""Characters of another library's reason in a message."""
DEEPEST = 4
LARGEST_INTEGER = 200
"""Bits; Python refuses to print integers of more than 4,300 digits."""


def excerpt(value: object, length: int = SHOWN) -> str:
    """`repr(value)`, or its beginning and "..." where it is longer; no more than that is ever built."""
    return shorten(_beginning(value, length, 0), length)


def shorten(text: object, length: int = REASON) -> str:
    """The text on one line, or its beginning and "..." where it is longer; "?" for what cannot be printed."""
    line = " ".join(str(text)[: 2 * length].split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line)
    return shown if len(shown) <= length else f"{shown[: length - 3]}..."


def _beginning(value: object, length: int, depth: int) -> str:
    if isinstance(value, str | bytes):
        return repr(value[:length])
    if isinstance(value, int) and value.bit_length() > LARGEST_INTEGER:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, Mapping):
        pairs = (f"{_beginning(key, length, depth + 1)}: {_part(value[key], length, depth)}" for key in value)
        return f"{{{_joined(pairs, length)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        opening, closing = "()" if isinstance(value, tuple) else "[]" if isinstance(value, list) else "{}"
        return f"{opening}{_joined((_part(item, length, depth) for item in value), length)}{closing}"
    return repr(value)[:length]


def _part(value: object, length: int, depth: int) -> str:
    return "..." if depth >= DEEPEST else _beginning(value, length, depth + 1)


def _joined(parts: Iterable[str], length: int) -> str:
    """As many of the parts as `length` characters can show."""
    shown: list[str] = []
    used = 0
    for part in islice(parts, length):
        shown.append(part)
        used += len(part) + 2
        if used > length:
            shown.append("...")
            break
    return ", ".join(shown)
