"""Images for a pretrained network; what the libraries' own preparations give is compared where they are loaded."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from dsui.backbones import preparation
from dsui.backbones.preparation import Preparation


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("shape", [(300, 411), (1300, 97)])
def test_a_long_strip_gives_the_same_pixels_without_resizing_all_of_it(
    monkeypatch: pytest.MonkeyPatch, interpolation: str, shape: tuple[int, int]
) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    prepare = Preparation(size=56, edge=64, interpolation=interpolation)
    whole = np.asarray(prepare.apply(noise)).astype(int)
    monkeypatch.setattr(preparation, "LARGEST_RESIZED", 0)
    part = np.asarray(prepare.apply(noise)).astype(int)
    assert abs(whole - part).max() <= 1  # one rounding to 8 bits
    assert (whole != part).mean() < 0.005  # 0.0014 at most when written


def test_a_strip_whose_resized_form_would_fill_the_memory_is_prepared() -> None:
    strip = Image.new("L", (1, 5_000_000), 7)  # 256 x 1,280,000,000 pixels at the edge of 256
    assert Preparation(size=224, edge=256).apply(strip).getextrema() == (7, 7)
