"""How a network's images are made of photographs. A run keeps it, so that training and prediction see the same pixels.

    crop        the shorter side is resized to `edge` and the central square of `size` pixels is cut out
    squash      the whole image is resized to `edge` x `edge`, and the centre is cut out likewise
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
LARGEST_RESIZED = 1 << 24
"""Pixels. A strip of 1 x 9,000,000 pixels would fill the memory with its shorter side at `edge`. Beyond this, only what
is cut out is computed. Places are then rounded otherwise: a level may differ by one, and `nearest` take a neighbour."""
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
            margin = self._margin(self.edge)
            square = image.resize((self.edge, self.edge), resample)
            return square.crop((margin, margin, margin + self.size, margin + self.size))
        if self.fit == "centre":
            return self._central_square(image, (width, height))
        if self.fit == "letterbox":
            return self._between_bars(image, (width, height))
        columns, rows = image.size
        shorter = min(columns, rows)
        columns, rows = (self.edge if side == shorter else int(self.edge * side / shorter) for side in (columns, rows))
        left, top = (self._margin(side) for side in (columns, rows))
        if columns * rows > LARGEST_RESIZED:
            across, down = image.width / columns, image.height / rows
            box = (left * across, top * down, (left + self.size) * across, (top + self.size) * down)
            return image.resize((self.size, self.size), resample, box)
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

    def _between_bars(self, image: Image.Image, extent: Extent) -> Image.Image:
        longer = max(extent)
        across, down = (max(1, round(self.size * length / longer)) for length in extent)
        scaled = image.resize((across, down), FILTERS[self.interpolation], box=(0, 0, *extent))
        square = Image.new(image.mode, (self.size, self.size), (GREY,) * len(image.getbands()))
        square.paste(scaled, ((self.size - across) // 2, (self.size - down) // 2))
        return square

    def _margin(self, side: int) -> int:
        return (side - self.size) // 2 if self.rounds_down else round((side - self.size) / 2)
