"""Names of classes and sets in a figure, in any script: made printable, short, and with room for wide letters.

A figure is laid out by the widths of DejaVu Sans. It lacks Chinese, Japanese, Korean and emoji, whose letters a browser
draws wider than the box that stands for them in the layout. Spaces behind the name make up for the difference; SVG does
not show them.
"""

from __future__ import annotations

import math
import unicodedata

LONGEST_NAME = 24
"""Letters of an ordinary width; a wide one counts as two."""
JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
"""They shape letters of India, Persia and emoji; other invisible signs only turn the direction of the text around."""
ROOM = 1.3
"""Spaces for each wide letter: it is 1 em wide, the box in its place 0.6 em, a space 0.32 em."""


def shorten(name: str) -> str:
    """The name of a class or set, short enough for a figure."""
    name = "".join(letter if _is_shown(letter) else "\ufffd" for letter in name if not _is_direction(letter))
    name = f" {name}" if name.startswith("_") else name  # matplotlib leaves names with a leading _ out of a legend
    if columns(name) > LONGEST_NAME:
        while columns(name) > LONGEST_NAME - 1 or _continues(name):
            name = name[:-1]
        name += "…"
    return name + " " * math.ceil(ROOM * sum(map(_is_wide, name)))


def columns(name: str) -> int:
    """Letters, wide ones twice; signs that stand on another letter take no room."""
    return sum(0 if _stands_on_another(letter) else 1 + _is_wide(letter) for letter in name)


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in JOINERS


def _is_direction(letter: str) -> bool:
    return unicodedata.category(letter) == "Cf" and letter not in JOINERS


def _is_wide(letter: str) -> bool:
    return unicodedata.east_asian_width(letter) in {"W", "F"}


def _stands_on_another(letter: str) -> bool:
    return unicodedata.category(letter) in {"Mn", "Me"} or letter in JOINERS


def _continues(name: str) -> bool:
    """Whether the last letter waits for one that joins it."""
    return name.endswith(tuple(JOINERS))
