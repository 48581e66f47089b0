"""How a network's images are made of photographs. A run keeps it, so that training and prediction see the same pixels.

    crop        the shorter side is resized to `edge` and the central square of `size` pixels is cut out
    squash      the whole image is resized to `size` x `size`
    centre      the central square is cut out and resized to `size` x `size`
    letterbox   the longer side is resized to `size`, and grey bars fill the square

`crop` and `squash` are how libraries of pretrained networks state it, and are done as they do it, to the pixel. They
round half a pixel differently when they cut out the centre: torchvision and timm to the even number, transformers down.

`centre` and `letterbox` are dsui's own. They take JPEG files at a half, a quarter or an eighth of their size if at
least SPARE times the needed pixels are left in each direction: the decoder is much quicker then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from PIL import Image

from dsui.schema import TRUTH, choice, record, whole

FILTERS = {each.name.lower(): each for each in Image.Resampling}
LARGEST_SIDE = 1 << 16
Readout = Literal["pooled", "token"]
Extent = tuple[float, float]
"""Width and height, in pixels."""
Fit = Literal["crop", "squash", "centre", "letterbox"]
FIT: tuple[Fit, ...] = ("crop", "squash", "centre", "letterbox")
FACTORS = (8, 4, 2)
"""By what the decoder of JPEG can divide the sides of an image."""
SPARE = 2
"""Pillow's own choice for thumbnails (`reducing_gap` of `Image.thumbnail`)."""
GREY = 128
"""Of the bars: nearly zero for a network whose pixels are scaled to [-1, 1]."""
READOUTS = ("pooled", "token")
USUAL_SIZE = 224
FACTS = record(
    {
        "edge": whole(1, LARGEST_SIDE),
        "fit": choice(*FIT),
        "interpolation": choice(*FILTERS),
        "rounds_down": TRUTH,
        "readout": choice(*READOUTS),
    }
)
"""What a run's config says of it, beside `size`, `mean` and `std`."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """`mean` and `std` [3] are for pixels in [0, 1]. `readout` says what of a transformer of tokens are its features:
    its own pooled output, or the first token where the weights hold no pooling layer."""

    size: int
    edge: int
    fit: Fit = "crop"
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

    def apply(self, image: Image.Image, extent: Extent | None = None) -> Image.Image:
        """An image of any size -> [size, size]. Of an image that was decoded smaller, `extent` is the part that is
        picture: where its size was no multiple of the factor, the last column or row is so in part."""
        resample = FILTERS[self.interpolation]
        width, height = image.size if extent is None else extent
        if self.fit == "squash":
            return image.resize((self.size, self.size), resample)
        if self.fit == "centre":
            return self._central_square(image, (width, height))
        if self.fit == "letterbox":
            longer = max(width, height)
            whole = max(1, round(self.size * width / longer)), max(1, round(self.size * height / longer))
            square = Image.new(image.mode, (self.size, self.size), (GREY,) * len(image.getbands()))
            scaled = image.resize(whole, resample, box=(0, 0, width, height))
            square.paste(scaled, ((self.size - whole[0]) // 2, (self.size - whole[1]) // 2))
            return square
        columns, rows = image.size
        shorter = min(columns, rows)
        columns, rows = (self.edge if side == shorter else int(self.edge * side / shorter) for side in (columns, rows))
        left, top = (self._margin(side) for side in (columns, rows))
        return image.resize((columns, rows), resample).crop((left, top, left + self.size, top + self.size))

    def factors(self, width: int, height: int) -> Iterator[int]:
        """By what the sides of a JPEG of this size may be divided in decoding, the largest first; libraries do not."""
        side = {"centre": min(width, height), "letterbox": max(width, height)}.get(self.fit, 0)
        return (factor for factor in FACTORS if side >= factor * SPARE * self.size)

    def _central_square(self, image: Image.Image, extent: Extent) -> Image.Image:
        side = min(extent)
        left, top = ((length - side) / 2 for length in extent)
        if side == self.size:  # half a pixel would blur what need not be resized
            left, top = int(left), int(top)
        resample = FILTERS[self.interpolation]
        return image.resize((self.size, self.size), resample, box=(left, top, left + side, top + side))

    def _margin(self, side: int) -> int:
        return (side - self.size) // 2 if self.rounds_down else round((side - self.size) / 2)
