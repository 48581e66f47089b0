"""Whether the classes of a user's own images are of uneven size, or have a single image, and what that means."""

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


def single_images(per_class: Mapping[str, int]) -> str | None:
    """For the user, of the number of training images of each class; None where no class has only one."""
    single = [name for name, count in per_class.items() if count == 1]
    if not single:
        return None
    have = f"{single[0]} has" if len(single) == 1 else f"{len(single):,} classes, {single[0]} among them, have"
    return f"{have} a single training image; it is trained on, and none is held out to choose thresholds with."
