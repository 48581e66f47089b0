"""What a file from outside must hold, written down once for each file and checked before anything is built from it.

    ROW = record({"epoch": whole(0), "loss": number()}, {"note": text()})
    check(json.loads(line), ROW)     # "epoch is 'three'; it must be a whole number from 0 to 1,000,000,000"

Keys that a schema does not name are ignored, because a later version may have added them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from dsui.excerpt import excerpt, shorten

LARGEST = 10**9
"""The largest whole number that a setting or a count may be, unless a schema says otherwise."""
LONGEST = 1000
"""Characters of a text."""
ITEMS = 1000
"""Of a list or a mapping."""


class SchemaError(ValueError):
    """A value is not what the schema says; the clause names its place, the value and what it must be."""


class _Absent:
    def __repr__(self) -> str:
        return "absent"


def _no_parts(_: Any) -> Iterable[tuple[str, object, Kind]]:
    return ()


@dataclass(frozen=True)
class Kind:
    """`expected` completes "it must be ..."; `parts` gives the place, the value and the kind of what a value holds."""

    expected: str
    holds: Callable[[Any], bool]
    parts: Callable[[Any], Iterable[tuple[str, object, Kind]]] = _no_parts


def check(value: object, kind: Kind, where: str = "") -> None:
    """Raise a SchemaError unless the value, and everything in it, is of its kind."""
    if not kind.holds(value):
        place = shorten(where.removeprefix("."), 100)
        raise SchemaError(f"{place + ' ' if place else 'it '}is {excerpt(value)}; it must be {kind.expected}")
    for place, part, inner in kind.parts(value):
        check(part, inner, where + place)


def fits(value: object, kind: Kind) -> bool:
    """Whether `check` passes."""
    return kind.holds(value) and all(fits(part, inner) for _, part, inner in kind.parts(value))


def whole(least: int = -LARGEST, most: int = LARGEST) -> Kind:
    return Kind(
        f"a whole number from {least:,} to {most:,}", lambda value: type(value) is int and least <= value <= most
    )


def number(least: float = -math.inf, most: float = math.inf, finite: bool = True) -> Kind:
    """A float or a whole number that a float can hold; with `finite` False also NaN and infinity."""

    def holds(value: object) -> bool:
        if type(value) is int:
            return abs(value) < 1 << 1000 and least <= value <= most
        return type(value) is float and ((math.isfinite(value) and least <= value <= most) or not finite)

    bounds = "" if math.isinf(least) and math.isinf(most) else f" from {least:g} to {most:g}"
    return Kind(f"a number{bounds}", holds)


def text(longest: int = LONGEST) -> Kind:
    return Kind(
        f"text of at most {longest:,} characters", lambda value: isinstance(value, str) and len(value) <= longest
    )


def choice(*values: object) -> Kind:
    def holds(value: object) -> bool:
        return any(type(value) is type(each) and value == each for each in values)

    listed = ", ".join(
        "null" if value is None else str(value).lower() if type(value) is bool else str(value) for value in values
    )
    return Kind(f"one of {listed}" if len(values) > 1 else listed, holds)


TRUTH = Kind("true or false", lambda value: type(value) is bool)
NOTHING = Kind("null", lambda value: value is None)


def either(*kinds: Kind) -> Kind:
    return Kind(" or ".join(kind.expected for kind in kinds), lambda value: any(fits(value, kind) for kind in kinds))


def instance(of: type, expected: str) -> Kind:
    return Kind(expected, lambda value: isinstance(value, of))


def listed(kind: Kind, most: int = ITEMS, least: int = 0) -> Kind:
    def parts(value: Any) -> Iterable[tuple[str, object, Kind]]:
        return ((f"[{index}]", item, kind) for index, item in enumerate(value))

    size = f"{least:,} to {most:,}" if least else f"at most {most:,}"
    return Kind(
        f"a list of {size} values", lambda value: isinstance(value, list | tuple) and least <= len(value) <= most, parts
    )


def mapping(kind: Kind, most: int = ITEMS) -> Kind:
    """Texts to values of one kind."""

    def holds(value: object) -> bool:
        return isinstance(value, dict) and len(value) <= most and all(isinstance(key, str) for key in value)

    def parts(value: Any) -> Iterable[tuple[str, object, Kind]]:
        return ((f".{key[:LONGEST]}", item, kind) for key, item in value.items())

    return Kind(f"a mapping of at most {most:,} keys", holds, parts)


def record(needed: Mapping[str, Kind], optional: Mapping[str, Kind] = {}) -> Kind:
    """A mapping with a kind for each key."""

    def parts(value: Any) -> Iterable[tuple[str, object, Kind]]:
        yield from ((f".{key}", value.get(key, _Absent()), kind) for key, kind in needed.items())
        yield from ((f".{key}", value[key], kind) for key, kind in optional.items() if key in value)

    return Kind("a mapping", lambda value: isinstance(value, dict), parts)


def of_type(hint: Any) -> Kind:
    """The kind of a value that Python annotates with `hint`: plain types, Literal, unions, tuple[X, ...]."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return either(*map(of_type, inner))
    if origin is Literal:
        return choice(*inner)
    if origin is tuple:
        return listed(of_type(inner[0]))
    plain = {int: whole(), float: number(finite=False), bool: TRUTH, str: text(), NoneType: NOTHING}
    return plain[hint]
