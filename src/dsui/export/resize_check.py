"""What the graph's own resizing changes against Pillow's, on images of other sizes than the model's.

`dsui predict` and the runtime without PyTorch prepare images with Pillow, so this matters to other callers of a file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dsui.data.dataset import ImageSet, Subset
from dsui.data.decode import ImageError, decode_image, pixels, prepared
from dsui.data.folder import FolderSet
from dsui.export.onnx_session import Session
from dsui.export.preparation_graph import preparation_graph
from dsui.runtime.inputs import ImageForm

MOST_FILES = 12
SIDES = ((0.6, 0.8), (1.0, 1.5), (1.7, 1.0), (2.3, 3.1), (5.0, 4.0))
"""Height and width of drawn images, as multiples of the model's size."""
LARGEST_SIDE = 4096
SEED = 0


class ResizeChange(NamedTuple):
    """`changed` is the share of the values that differ, `most` the largest difference in levels of 255."""

    images: int
    source: str
    changed: float
    most: int

    @property
    def sentence(self) -> str:
        if self.most == 0:
            return f"Its own resizing gives Pillow's pixels on {self.images} {self.source}."
        return (
            f"Its own resizing changes {self.changed:.2%} of Pillow's values, by at most {self.most} of 255, on "
            f"{self.images} {self.source}."
        )


def resize_change(form: ImageForm, originals: ImageSet | None) -> ResizeChange:
    """On the files of held-out images where there are any, else on drawn images."""
    images, source = _files(originals, form.channels), "files of held-out images"
    if not images:
        images, source = _drawn(form), "drawn images of other sizes"
    session = Session(preparation_graph(form.channels, form.size, form.preparation).SerializeToString())
    differences = []
    for image in images:
        values = np.asarray(image)
        given = values[None, :, :, None] if values.ndim == 2 else values[None]
        by_graph = session(given)["pixels"][0]
        by_pillow = pixels(prepared(image, form.size, form.preparation)).astype(np.float32)
        differences.append(np.abs(by_graph - by_pillow))
    found = np.stack(differences)
    return ResizeChange(len(images), source, float((found > 0).mean()), int(found.max()))


def _files(originals: ImageSet | None, channels: int) -> list[Image.Image]:
    indices: Tensor | None = None
    while isinstance(originals, Subset):
        indices = originals.indices if indices is None else originals.indices[indices]
        originals = originals.images
    if not isinstance(originals, FolderSet):
        return []
    places = range(len(originals.files)) if indices is None else indices.tolist()
    chosen = [originals.files[place] for place in list(places)[:: max(1, len(places) // MOST_FILES)][:MOST_FILES]]
    found = []
    for file in chosen:
        try:
            image = decode_image(file, channels)
        except ImageError:
            continue
        if image.size != (originals.size, originals.size) and max(image.size) <= LARGEST_SIDE:
            found.append(image)
    return found


def _drawn(form: ImageForm) -> list[Image.Image]:
    """Noise, and smooth patches, of several sizes."""
    generator = torch.Generator().manual_seed(SEED)
    images = []
    for tall, wide in SIDES:
        height, width = max(1, round(tall * form.size)), max(1, round(wide * form.size))
        noise = torch.randint(256, (height, width, form.channels), generator=generator)
        patches = torch.randint(256, (3, 5, form.channels), generator=generator)
        for values in (noise, patches):
            array = values.to(torch.uint8).numpy()
            image = Image.fromarray(array[:, :, 0] if form.channels == 1 else array)
            images.append(image.resize((width, height), Image.Resampling.BICUBIC))
    return images
