"""Single images worth looking at, as small PNG files inside the page."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

from PIL import Image
from torch import Tensor

from dsui.data.dataset import ImageSet, Subset
from dsui.data.folder import FolderSet
from dsui.data.foreign import ReshapedSet
from dsui.data.registry import folder_path
from dsui.report.columns import UNKNOWN
from dsui.report.evidence import SeenImages, score_label


def origin(images: ImageSet, index: int) -> str | None:
    """The path of an image below PATH of `folder:PATH`, as in test/cat/7.png; None for a set that is no folder."""
    match images:
        case FolderSet():
            return images.files[index].relative_to(folder_path(images.name)).as_posix()
        case Subset():
            return origin(images.images, int(images.indices[index]))
        case ReshapedSet():
            return origin(images.images, index)
    return None


LARGEST_SIDE = 64
"""Larger images are shown smaller, so that a page of them stays small."""
SHOWN = 8


class Thumbnail(NamedTuple):
    source: str
    """A data: address."""
    alternative: str
    """What it is, for whoever cannot see it."""
    lines: tuple[str, ...]
    """What stands below it."""
    file: str | None = None
    """Where it lies below its data folder, of a user's own images."""


def most(scores: Tensor, among: Tensor | None = None, count: int = SHOWN) -> Tensor:
    """Indices of the `count` largest scores [N], largest first, among those marked [N]; of equal ones the first."""
    places = scores.argsort(descending=True, stable=True)
    return (places if among is None else places[among[places]])[:count]


def thumbnails(
    seen: SeenImages, indices: Tensor, score: str, classes: tuple[str, ...], foreign: bool
) -> list[Thumbnail]:
    """`classes` are the model's; a foreign image has none of them, but may have one it does not know. `score` is shown
    below each image."""
    images = seen.load()
    confidence, predicted = seen.logits[indices].double().softmax(1).max(1)
    found = []
    for place, pixels in enumerate(images.read(indices)):
        index = int(indices[place])
        guess = f"{classes[predicted[place]]}, {confidence[place]:.3f}"
        named = not foreign or seen.name == UNKNOWN
        truth = f"is {images.classes[seen.labels[index]]}" if named else f"from {seen.name}"
        found.append(
            Thumbnail(
                png(pixels),
                f"Image {index}: {truth}, predicted {guess}",
                (truth, f"predicted {guess}", _told(score, float(seen.scores[score][index]))),
                origin(images, index),
            )
        )
    return found


def _told(score: str, value: float) -> str:
    """A score by its name; of a density itself, whose score is its negative."""
    shown = -value if score == "log_density" else value
    digits = f"{shown:.{1 if abs(shown) >= 100 else 2}f}".replace("-", "\N{MINUS SIGN}")
    return f"{score_label(score)} {digits}"


def png(pixels: Tensor) -> str:
    """The data: address of uint8 [channels, height, width], one channel or three."""
    array = pixels.permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
