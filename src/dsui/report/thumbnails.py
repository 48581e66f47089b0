"""Single images worth looking at, as small PNG files inside the page."""

from __future__ import annotations

import base64
import io
import unicodedata
from typing import NamedTuple

from PIL import Image
from torch import Tensor

from dsui.data.dataset import ImageSet, Subset
from dsui.data.folder import FolderSet
from dsui.data.foreign import ReshapedSet
from dsui.data.registry import folder_path
from dsui.report.columns import UNKNOWN
from dsui.report.run_data import ScoredImages, score_label

LARGEST_SIDE = 64
"""Larger images are scaled down to keep the page small."""
SHOWN = 8


def origin(images: ImageSet, index: int) -> str | None:
    """The path of an image below PATH of `folder:PATH`, as in test/cat/7.png; None for a set that is not a folder."""
    match images:
        case FolderSet():
            return images.files[index].relative_to(folder_path(images.name)).as_posix()
        case Subset():
            return origin(images.images, int(images.indices[index]))
        case ReshapedSet():
            return origin(images.images, index)
    return None


class Thumbnail(NamedTuple):
    source: str
    """A data: URL."""
    alternative: str
    """The text for readers who cannot see the image."""
    lines: tuple[str, ...]
    """The text below the image."""
    file: str | None = None
    """Its path below the data folder, for images of a user's folder."""


def highest(scores: Tensor, among: Tensor | None = None, count: int = SHOWN) -> Tensor:
    """Indices of the `count` largest of N scores, largest first, among those marked [N]; the first of equal ones."""
    order = scores.argsort(descending=True, stable=True)
    return (order if among is None else order[among[order]])[:count]


def thumbnails(
    scored: ScoredImages, indices: Tensor, score: str, classes: tuple[str, ...], foreign: bool
) -> list[Thumbnail]:
    """`classes` are those of the model. A foreign image has none of them; one of an open-set test has a class that the
    model does not know. `score` is shown below each image."""
    images = scored.load()
    confidence, predicted = scored.logits[indices].double().softmax(1).max(1)
    shown = []
    for place, pixels in enumerate(images.read(indices)):
        index = int(indices[place])
        guess = f"{apart(classes[predicted[place]])}, {confidence[place]:.3f}"
        named = not foreign or scored.name == UNKNOWN
        truth = f"is {apart(images.classes[scored.labels[index]])}" if named else f"from {scored.name}"
        shown.append(
            Thumbnail(
                png(pixels),
                f"Image {index}: {truth}, predicted {guess}",
                (truth, f"predicted {guess}", _score_text(score, float(scored.scores[score][index]))),
                origin(images, index),
            )
        )
    return shown


def apart(name: str) -> str:
    """A name written from right to left, in the marks that keep it from turning round what stands beside it."""
    turns = any(unicodedata.bidirectional(letter) in {"R", "AL"} for letter in name)
    return f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}" if turns else name


def _score_text(score: str, value: float) -> str:
    """Name and value of a score. The score of a log-density is its negative; the log-density itself is shown."""
    value = -value if score == "log_density" else value
    digits = f"{value:.{1 if abs(value) >= 100 else 2}f}".replace("-", "\N{MINUS SIGN}")
    return f"{score_label(score)} {digits}"


def png(pixels: Tensor) -> str:
    """The data: URL of uint8 [channels, height, width], one channel or three."""
    array = pixels.permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
