"""Whether the images of a run are large enough for its network."""

from __future__ import annotations

from dsui.backbones.registry import BACKBONES
from dsui.data.dataset import ImageSet
from dsui.errors import DsuiError


def check_side(backbone: str, images: ImageSet) -> None:
    """Raise where the images are too small for the backbone of that name, which would say so only in the first step."""
    needed = BACKBONES[backbone].smallest_side if backbone in BACKBONES else 1
    side = min(images.shape[1:])
    if side < needed:
        raise DsuiError(
            f"{backbone} needs images of at least {needed}x{needed} pixels and those of {images.name} have "
            f"{side}x{side}; choose --backbone small or resnet18, or a larger --size for folder:PATH."
        )
