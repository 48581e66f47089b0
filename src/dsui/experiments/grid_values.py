"""The values of a grid's keys: one or a list of them, in limits, and labels that name settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from string import Formatter
from typing import Any, TypeVar

from dsui.excerpt import excerpt, shorten
from dsui.experiments.grid_checks import GridError, check_name, dataset_shape

LONGEST = 300
"""Characters of a name or a label."""

T = TypeVar("T", str, int, float)


def as_mapping(values: object, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """A mapping that has none but these keys."""
    if not isinstance(values, dict):
        raise GridError(f"{where} is not a mapping; write one 'key: value' on each line.")
    for key in values:
        check_name("key", key, keys, where)
    return {str(key): value for key, value in values.items()}


def as_list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def as_tuple(value: object, kind: type[T], where: str) -> tuple[T, ...]:
    """One value or a list of them."""
    items = as_list(value)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (int, float) if kind is float else kind):
            wanted = {str: "text", int: "a whole number", float: "a number"}[kind]
            raise GridError(f"{where}: {excerpt(item)} should be {wanted}.")
        if isinstance(item, str):
            _check_length(item, item, where)
    return tuple(kind(item) for item in items)


def as_text(value: object, where: str) -> str:
    """One text, or the number that stands for it."""
    if not isinstance(value, str | int | float):
        raise GridError(f"{where} is {excerpt(value)}; write a text.")
    text = value if isinstance(value, str) else excerpt(value)
    _check_length(text, text, where)
    return text


def of_data(value: object, data: str, where: str) -> object:
    """The value for a data set where it depends on that."""
    if not isinstance(value, dict):
        return value
    for name in value:
        dataset_shape(str(name))
    if data not in value:
        present = shorten(", ".join(map(str, value)))
        raise GridError(f"{where}: there is no entry for {data}, only for {present}; add one.")
    return value[data]


def settings_of(values: object, where: str) -> Iterator[dict[str, object]]:
    """Every combination of the values in `set`."""
    if not isinstance(values, dict):
        raise GridError(f"{where}: set is {excerpt(values)}; write it as in 'set: {{epochs: 3}}'.")
    keys = [str(key) for key in values]
    for key, value in values.items():
        if value == []:
            raise GridError(f"{where}: {shorten(key, 60)} is an empty list; name at least one value, or leave it out.")
    for combination in product(*(value if isinstance(value, list) else [value] for value in values.values())):
        yield dict(zip(keys, combination, strict=True))


def as_label(label: object, values: Mapping[str, object], where: str) -> str:
    """The label with the settings that it names put in: "dsui K {components}". Nothing else may stand in braces."""
    if label is None:
        return str(values["method"])
    pattern, shown = as_text(label, f"{where}: label"), excerpt(label)
    advice = f"which `set` does not have; it may name {shorten(', '.join(values))}"
    parts = []
    try:
        for text, name, form, conversion in Formatter().parse(pattern):
            parts.append(text)
            if name is None:
                continue
            if name not in values or form or conversion:
                whole = f"{name}{'!' if conversion else ''}{conversion or ''}{':' if form else ''}{form}"
                raise GridError(f"{where}: label {shown} names {excerpt(whole)}, {advice}.")
            value = values[name]
            parts.append(value if isinstance(value, str) else excerpt(value))
    except ValueError as error:
        raise GridError(f"{where}: label {shown} is not one ({error}); write names in braces.") from error
    _check_length("".join(parts), label, where)
    return "".join(parts)


def _check_length(text: str, given: object, where: str) -> None:
    if len(text) > LONGEST:
        raise GridError(f"{where}: {excerpt(given)} has {len(text):,} characters, more than {LONGEST}.")
