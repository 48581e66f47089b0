"""Whether quarter turns say anything about a run's images.

Doubles are classes for turned images (`dsui.methods.doubles`). They help where an image has an upright. Photographs of
things do; textures, microscope and aerial images often do not, and then a network cannot tell an image from its double:

    share = images in their right turn / images,    held-out images, each in all four turns; a guess gives 1/4
"""

from __future__ import annotations

import torch

from dsui.data.augment import Transform
from dsui.data.pipeline import Loader
from dsui.methods.doubles import TURNS
from dsui.methods.method import Method

LITTLE = 0.5
"""Half the share that turns could have: below it, most images look alike in two or more turns."""


@torch.no_grad()
def share_told_apart(method: Method, transform: Transform, images: Loader, indices: torch.Tensor, batch: int) -> float:
    """Of the images at `indices`; `method` is in evaluation mode and was trained on turned copies."""
    right = 0
    for found in images.stream(indices.split(batch)):
        for quarter in range(TURNS):
            seen = method.seen_turns(transform.plain(found.images.rot90(quarter, (2, 3))))
            right += int((seen == quarter).sum())
    return right / (TURNS * len(indices))


def advice(share: float | None) -> str | None:
    """A sentence for the user where turns say little."""
    if share is None or share >= LITTLE:
        return None
    return (
        f"The network tells the quarter turns of only {share:.0%} of held-out images (a guess: 25%), so doubles help "
        "little with these images; train with --set doubles=none."
    )
