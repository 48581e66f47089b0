"""Which classes of Tiny ImageNet the transfer study uses for what, fixed before anything was trained.

A permutation of the 200 classes gives 120 for the network's own training, 32 that settings are chosen on, and 48 that
are scored once. The network sees no image of the last 80. A draw takes 8 of these classes with 50 photographs each, and
8 more as foreign.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SEED, CLASSES = 28, 200
TRAINED, SELECTION = 120, 32
KNOWN, FOREIGN, PHOTOGRAPHS = 8, 8, 50
"""Classes of a draw, and training photographs of each known one."""
SELECTION_DRAWS, TEST_DRAWS = 8, 20


def shares() -> tuple[list[int], list[int], list[int]]:
    """Classes of the network, of the selection, of the test, each in ascending order; numbers are by WordNet id."""
    order = Random(SEED).sample(range(CLASSES), CLASSES)  # noqa: S311
    middle = TRAINED + SELECTION
    return sorted(order[:TRAINED]), sorted(order[TRAINED:middle]), sorted(order[middle:])


class Draw(NamedTuple):
    """`known` are the classes to tell apart, `foreign` others; a class is the number of its WordNet id."""

    number: int
    known: tuple[int, ...]
    foreign: tuple[int, ...]

    def photographs(self, label: int, of: int, count: int) -> list[int]:
        """Which `count` of the `of` training photographs of a class are trained on; the others are for test."""
        return sorted(Random(f"{SEED} photographs {self.number} {label}").sample(range(of), count))  # noqa: S311


def draws_for_selection() -> list[Draw]:
    """Of the classes that settings are chosen on."""
    return [_draw("selection", number, shares()[1]) for number in range(SELECTION_DRAWS)]


def draws_for_test() -> list[Draw]:
    """Of the classes that are scored once."""
    return [_draw("test", number, shares()[2]) for number in range(TEST_DRAWS)]


def _draw(name: str, number: int, classes: list[int]) -> Draw:
    chosen = Random(f"{SEED} {name} {number}").sample(classes, KNOWN + FOREIGN)  # noqa: S311
    return Draw(number, tuple(sorted(chosen[:KNOWN])), tuple(sorted(chosen[KNOWN:])))
