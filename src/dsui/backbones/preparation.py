"""How a pretrained network's images are made of photographs, as its library states it.

    crop     the shorter side is resized to `edge` and the central square of `size` pixels is cut out
    squash   the whole image is resized to `edge` x `edge`, and the centre is cut out likewise

Libraries round half a pixel differently when they cut out the centre: torchvision and timm to the even number,
transformers down. A run keeps all of this, so that training and prediction see the same pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from PIL import Image

from dsui.schema import TRUTH, choice, record, whole

FILTERS = {each.name.lower(): each for each in Image.Resampling}
LARGEST_SIDE = 1 << 16
LARGEST_RESIZED = 1 << 24
"""Pixels. A strip of 1 x 9,000,000 pixels would fill the memory with its shorter side at `edge`. Beyond this, only what
is cut out is computed. Places are then rounded otherwise: a level may differ by one, and `nearest` take a neighbour."""
Readout = Literal["pooled", "token"]
FIT = ("crop", "squash")
READOUTS = ("pooled", "token")
USUAL_SIZE = 224
RESIZING = {
    "edge": whole(1, LARGEST_SIDE),
    "fit": choice(*FIT),
    "interpolation": choice(*FILTERS),
    "rounds_down": TRUTH,
}
"""What `apply` needs to know, beside `size`."""
FACTS = record({**RESIZING, "readout": choice(*READOUTS)})
"""What a run's config says of it, beside `size`, `mean` and `std`."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """`mean` and `std` [3] are for pixels in [0, 1]. `readout` says what of a transformer of tokens are its features:
    its own pooled output, or the first token where the weights hold no pooling layer."""

    size: int
    edge: int
    fit: Literal["crop", "squash"] = "crop"
    interpolation: str = "bilinear"
    rounds_down: bool = False
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    readout: Readout = "pooled"

    def facts(self) -> dict[str, object]:
        """What `FACTS` lists."""
        own = asdict(self)
        return {name: own[name] for name in ("edge", "fit", "interpolation", "rounds_down", "readout")}

    @classmethod
    def of(cls, size: int, mean: tuple[float, ...], std: tuple[float, ...], facts: Mapping[str, Any]) -> Preparation:
        """The reverse of `facts`; these were checked by `FACTS`."""
        own = {name: facts[name] for name in ("edge", "fit", "interpolation", "rounds_down", "readout")}
        return cls(size=size, mean=mean, std=std, **own)

    def resized(self, size: int) -> Preparation:
        """For images of another size, with the same share of the image cut off."""
        return replace(self, size=size, edge=max(size, round(self.edge * size / self.size)))

    def apply(self, image: Image.Image) -> Image.Image:
        """An image of any size -> [size, size]"""
        resample = FILTERS[self.interpolation]
        if self.fit == "squash":
            margin = self._margin(self.edge)
            square = image.resize((self.edge, self.edge), resample)
            return square.crop((margin, margin, margin + self.size, margin + self.size))
        width, height = image.size
        shorter = min(width, height)
        width, height = (self.edge if side == shorter else int(self.edge * side / shorter) for side in (width, height))
        left, top = (self._margin(side) for side in (width, height))
        if width * height > LARGEST_RESIZED:
            across, down = image.width / width, image.height / height
            box = (left * across, top * down, (left + self.size) * across, (top + self.size) * down)
            return image.resize((self.size, self.size), resample, box)
        return image.resize((width, height), resample).crop((left, top, left + self.size, top + self.size))

    def _margin(self, side: int) -> int:
        return (side - self.size) // 2 if self.rounds_down else round((side - self.size) / 2)
