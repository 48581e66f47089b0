"""Which images of a class are for test where the user has not split them: about a fifth, by the hashes of their names.

    for test:  h < 2^64 / 5      h: the first eight bytes of the SHA-256 of the name

So no image changes sides when others are added or removed, with one exception. Where the hash would leave one side of a
class empty, the one with the smallest h is for test, or the one with the largest h for training, and this one may
change sides when the class changes. A class of one image is trained on and not tested.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

HASHES = 1 << 64
TEST_SHARE = 5
"""One image in five is for test."""


def chosen_for_test(names: Sequence[bytes]) -> list[int]:
    """The places of those that the rule takes for test, among the names of one class."""
    if len(names) < 2:
        return []
    hashes = [int.from_bytes(hashlib.sha256(name).digest()[:8], "big") for name in names]
    by_hash = sorted(range(len(names)), key=hashes.__getitem__)
    chosen = [place for place in by_hash if hashes[place] * TEST_SHARE < HASHES]
    return (chosen or by_hash[:1])[: len(names) - 1]
