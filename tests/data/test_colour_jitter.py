"""Colour jitter against Pillow's enhancements and in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from dsui.data.augment import Transform
from dsui.data.colour_jitter import jittered

ENHANCEMENTS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def photo(side: int = 24) -> torch.Tensor:
    """[1, 3, side, side] of mild colours, which no change cuts."""
    coarse = torch.randint(90, 150, (1, 3, 5, 5), generator=torch.Generator().manual_seed(0)).float()
    return torch.nn.functional.interpolate(coarse, side, mode="bilinear").round()


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("draw", [0.1, 0.9])
def test_each_change_alone_is_that_of_pillow(which: int, draw: float) -> None:
    uniform = torch.full((3, 1), 0.5)
    uniform[which] = draw
    found = jittered(photo(), uniform, 0.5)[0].permute(1, 2, 0).numpy()
    image = Image.fromarray(photo()[0].permute(1, 2, 0).to(torch.uint8).numpy())
    wanted = np.asarray(ENHANCEMENTS[which](image).enhance(1 + 0.5 * (2 * draw - 1)))
    np.testing.assert_allclose(found, wanted, atol=1.5)  # Pillow rounds grey, its mean and the result


def test_the_formula_in_float64() -> None:
    batch = torch.randint(256, (5, 3, 6, 6), generator=torch.Generator().manual_seed(1)).float()
    uniform = torch.rand(3, 5, generator=torch.Generator().manual_seed(2))
    b, c, s = (1 + 0.4 * (2 * uniform.double() - 1))[..., None, None, None]
    x = batch.double()
    grey = torch.einsum("bchw,c->bhw", x, torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64))[:, None]
    mean = grey.round().mean((1, 2, 3), keepdim=True)
    wanted = (b * (mean + c * (grey + s * (x - grey) - mean))).clamp(0, 255)
    torch.testing.assert_close(jittered(batch, uniform, 0.4).double(), wanted, rtol=0, atol=2e-4)  # float32 up to 255


def test_grey_images_have_no_saturation_and_nothing_changes_at_the_middle() -> None:
    grey = photo()[:, :1]
    vivid = torch.tensor([[0.5], [0.5], [0.9]])
    assert torch.equal(jittered(grey, vivid, 0.5), jittered(grey, torch.full((3, 1), 0.5), 0.5))
    torch.testing.assert_close(jittered(photo(), torch.full((3, 1), 0.5), 0.5), photo(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", [{"jitter": 1.0}, {"jitter": -0.1}, {"smallest_crop": 1.5}])
def test_settings_that_make_no_image_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="they must be 0 to 1, and jitter below 1"):
        Transform(**settings)  # type: ignore[arg-type]


def test_shifted_crops_are_jittered_too() -> None:
    batch, indices = photo().to(torch.uint8), torch.arange(1)
    plain = Transform(2).augmented(batch, indices, 0)
    changed = Transform(2, jitter=0.3).augmented(batch, indices, 0)
    assert not torch.equal(plain, changed)
