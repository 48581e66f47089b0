"""Whether the classes of a user's own images are of uneven size, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

UNEVEN = 3.0
"""The largest class has at least this many times the images of the smallest. The published sets are below it: SVHN,
the most uneven one, has 2.97."""


def is_uneven(per_class: Mapping[str, int]) -> bool:
    """Of the number of training images of each class."""
    counts = per_class.values()
    return len(per_class) > 1 and max(counts) >= UNEVEN * max(min(counts), 1)


def sentence(per_class: Mapping[str, int]) -> str | None:
    """For the user; None for classes of even size."""
    if not is_uneven(per_class):
        return None
    small, large = (function(per_class, key=per_class.__getitem__) for function in (min, max))
    images = f"{per_class[small]:,} training image{'s' * (per_class[small] != 1)}"
    return (
        f"Classes are uneven: {small} has {images} and {large} {per_class[large]:,}; "
        "--balance logits makes them count alike."
    )
