"""Networks of timm and torchvision beside what `dsui.backbones.libraries` makes of them, with random weights.

    pip install --no-deps timm torchvision
    python -m studies.library_networks timm 0 20        # the first twenty families; 98 in timm 1.0.31

For one network of each family of timm, the smallest by its name, and for every network of torchvision: whether it gives
features of the stated width, and whether images of six sizes are prepared to the pixel as its library does it. The
tests have stand-ins, because torchvision's wheel needs the CUDA build of PyTorch for two operations on boxes. Those are
declared here and never called, so the rest of it also imports beside PyTorch for the CPU alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from PIL import Image

from dsui.backbones.named import load_backbone
from dsui.errors import DsuiError

SIDES = ((300, 400), (233, 501), (600, 301), (224, 224), (100, 90), (257, 256))
LEVEL = 0.4 / 255
"""Less than half a level of 256: a pixel that differs by one is found whatever the deviation, which is below 1."""
SMALL = ("test_", "nano", "tiny", "atto", "pico", "femto", "18", "xxs", "_s", "small")
Case = tuple[str, Callable[[], Callable[[Image.Image], Any]]]
"""A spec, and what gives the library's own preparation."""


def declare_operations() -> torch.library.Library:
    """What torchvision describes when it is imported and its compiled part would define."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def timm_cases() -> Iterator[Case]:
    import timm
    from timm.data import create_transform, resolve_model_data_config
    from timm.models import list_modules

    def preparation(name: str) -> Callable[[Image.Image], Any]:
        model = timm.create_model(name, pretrained=False)
        transform: Callable[[Image.Image], Any] = create_transform(**resolve_model_data_config(model))
        return transform

    for family in sorted(list_modules()):
        names = sorted(timm.list_models(module=family), key=lambda name: (not any(s in name for s in SMALL), len(name)))
        for name in names[:1]:
            yield f"timm:{name}", partial(preparation, name)


def torchvision_cases() -> Iterator[Case]:
    from torchvision import models

    def preparation(name: str) -> Callable[[Image.Image], Any]:
        transform: Callable[[Image.Image], Any] = models.get_model_weights(name).DEFAULT.transforms()
        return transform

    for name in models.list_models(module=models):
        yield f"torchvision:{name}", partial(preparation, name)


def answer(spec: str, own: Callable[[], Callable[[Image.Image], Any]]) -> str:
    """Of one network."""
    try:
        loaded = load_backbone(spec, pretrained=False)
    except DsuiError as refusal:
        return str(refusal)
    transform, found = own(), loaded.preparation
    mean, std = (np.array(values)[:, None, None] for values in (found.mean, found.std))
    drawn = np.random.default_rng(0)
    for height, width in SIDES:
        image = Image.fromarray(drawn.integers(0, 256, (height, width, 3), dtype=np.uint8))
        wanted = transform(image).numpy()
        ours = (np.asarray(found.apply(image), dtype=np.float64).transpose(2, 0, 1) / 255 - mean) / std
        if ours.shape != wanted.shape or np.abs(ours - wanted).max() > LEVEL:
            return f"prepares an image of {width} x {height} otherwise"
    return f"{loaded.backbone.out_features} features of {found.size} x {found.size} pixels, the same pixels"


def main(library: str, first: int, last: int) -> None:
    kept = declare_operations() if find_spec("torchvision") and torch.version.cuda is None else None
    for spec, own in list({"timm": timm_cases, "torchvision": torchvision_cases}[library]())[first:last]:
        print(f"{spec}: {answer(spec, own)}", flush=True)
    del kept


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4] or (0, 1000)))
