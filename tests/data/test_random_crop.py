"""Random resized crops against Pillow's, and their distribution."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image
from scipy.stats import kstest

from dsui.data.augment import Transform, uniforms
from dsui.data.random_crop import DRAWS, NARROWEST, boxes, cropped

SIDE = 12


def images(count: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, 3, SIDE, SIDE), generator=generator).float()


def drawn(count: int, epoch: int = 0) -> torch.Tensor:
    return uniforms(3, torch.arange(count), epoch, DRAWS)


def test_a_crop_is_the_part_of_the_image_that_pillow_enlarges() -> None:
    batch, uniform = images(), drawn(6)
    mirrored = torch.tensor([True, False] * 3)
    found = cropped(batch, uniform, 0.3, mirrored)
    for i, (left, top, width, height) in enumerate(zip(*(part.tolist() for part in boxes(uniform, 0.3)), strict=True)):
        box = tuple(SIDE * value for value in (left, top, left + width, top + height))
        for channel in range(3):
            plane = Image.fromarray(batch[i, channel].numpy())
            wanted = np.array(plane.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))
            wanted = wanted[:, ::-1] if mirrored[i] else wanted
            # float32 places in 12 pixels are right to 1e-6, and neighbours differ by up to 255
            np.testing.assert_allclose(found[i, channel].numpy(), wanted, atol=2e-3)


def test_crops_lie_inside_and_have_the_area_and_shape_that_were_asked_for() -> None:
    """Kolmogorov-Smirnov over 50,000 draws; a p-value below 1e-4 comes by chance once in ten thousand."""
    left, top, width, height = boxes(drawn(50_000), 0.2)
    for place, length in ((left, width), (top, height)):
        assert float(place.min()) >= 0
        assert float((place + length).max()) <= 1 + 1e-6  # a sum of two float32
    area, shape = width * height, width / height
    assert kstest(area.numpy(), "uniform", args=(0.2, 0.8)).pvalue > 1e-4
    assert float(shape.min()) >= NARROWEST - 1e-5
    assert float(shape.max()) <= 1 / NARROWEST + 1e-5
    small = area < NARROWEST  # whose shapes are not cut
    spread = math.log(1 / NARROWEST)
    assert kstest(shape[small].log().numpy(), "uniform", args=(-spread, 2 * spread)).pvalue > 1e-4
    room = 1 - width > 1e-3  # elsewhere float32 leaves no digits of the place
    assert kstest((left[room] / (1 - width[room])).numpy(), "uniform").pvalue > 1e-4


def test_a_crop_of_everything_is_the_image() -> None:
    batch = images()
    found = cropped(batch, drawn(6), 1.0, torch.zeros(6, dtype=torch.bool))
    torch.testing.assert_close(found, batch, rtol=0, atol=2e-3)  # as above


def test_epochs_and_samples_draw_anew_and_any_batch_gives_the_same_bits() -> None:
    transform, batch = Transform(0, smallest_crop=0.3, jitter=0.4, seed=1), images(7).to(torch.uint8)
    indices = torch.arange(7)
    whole = transform.augmented(batch, indices, 2)
    shuffle = torch.tensor([4, 0, 6])
    assert torch.equal(transform.augmented(batch[shuffle], shuffle, 2), whole[shuffle])
    assert torch.equal(transform.augmented(batch, indices, torch.tensor(2)), whole)
    assert not torch.equal(transform.augmented(batch, indices, 3), whole)
    assert not torch.equal(Transform(0, smallest_crop=0.3, jitter=0.4).augmented(batch, indices, 2), whole)
    same = transform.augmented(batch[:1].expand(7, -1, -1, -1), indices, 2)
    assert len({tuple(each.flatten().tolist()) for each in same}) == 7


def test_draws_are_uniform_and_independent_of_each_other_and_of_the_epoch() -> None:
    first, later = uniforms(0, torch.arange(50_000), 0, 7), uniforms(0, torch.arange(50_000), 1, 7)
    assert all(kstest(row.numpy(), "uniform").pvalue > 1e-4 for row in first)
    together = np.corrcoef(np.concatenate([first.numpy(), later.numpy()]))
    # correlations of independent draws deviate by 1 / sqrt(50,000) = 0.0045; five deviations, for 91 pairs
    assert np.abs(together - np.eye(14)).max() < 0.0225
