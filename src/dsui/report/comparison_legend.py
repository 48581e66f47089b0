"""Short labels for the lines of a comparison, and the legend that says which settings they stand for.

    dsui A   dsui B   msp A        All: demo, epochs=6.  A: nothing else.  B: rho=10.

A letter stands for the same settings in every line. What all own lines share is said once; where they share everything,
or what they differ in is their method, there are no letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, product
from string import ascii_uppercase
from typing import NamedTuple

from dsui.report.comparison_lines import LineKey, line_labels, variant_parts

SETTING = re.compile(r", (?=\w+=)")
"""Between two settings of a recipe; a value may hold commas of its own."""


class Legend(NamedTuple):
    """`shared` are the settings of all own lines, `entries` those that differ: by letter, one after another."""

    shared: str
    entries: tuple[tuple[str, str], ...]


class ShortLabels:
    """Names the lines of a comparison: the method and, where settings differ, the letter that stands for its own ones.

    Once it was called, `legend` says what the letters stand for, and `long` are the labels without letters.
    """

    def __init__(self) -> None:
        self.legend = Legend("", ())
        self.long: tuple[str, ...] = ()

    def __call__(self, lines: Iterable[LineKey]) -> dict[LineKey, str]:
        keys = list(lines)
        settings = {key: _settings(key, keys) for key in keys}
        own = [settings[key] for key in keys if not key.quoted]
        shared = [part for part in own[0] if all(part in other for other in own)] if own else []
        different = {
            key: ", ".join(parts if key.quoted else [part for part in parts if part not in shared])
            for key, parts in settings.items()
        }
        several = len({text for key, text in different.items() if not key.quoted}) > 1
        lettered = {key: text for key, text in different.items() if (text if key.quoted else several)}
        letters = dict(zip(dict.fromkeys(lettered.values()), _letters(), strict=False))
        entries = tuple((letter, text or "nothing else") for text, letter in letters.items())
        self.legend = Legend(", ".join(shared), entries)
        self.long = tuple(line_labels(keys).values())
        return {key: f"{key.method} {letters[lettered[key]]}" if key in lettered else key.method for key in keys}


def _settings(key: LineKey, lines: Sequence[LineKey]) -> list[str]:
    """The parts of the recipe; before them the objective where lines of this method differ in it."""
    if key.quoted:
        return variant_parts(key, lines)
    objective, recipe = key.variant
    of_method = {line.variant[0] for line in lines if (line.method, line.quoted) == (key.method, key.quoted)}
    named = [objective] if objective is not None and len(of_method) > 1 else []
    return [*named, *(SETTING.split(recipe) if recipe else [])]


def _letters() -> Iterator[str]:
    """A to Z, then AA, AB and so on."""
    return ("".join(letters) for length in count(1) for letters in product(ascii_uppercase, repeat=length))
