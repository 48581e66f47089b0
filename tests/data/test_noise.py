"""Noise as a data set: shape, seed and distribution."""

from __future__ import annotations

import pytest
import torch

from dsui.data.dataset import MemorySet
from dsui.data.noise import noise_set

LIKE = MemorySet("grey", ("a", "b"), torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))


def test_noise_has_the_shape_of_the_set_it_is_foreign_to() -> None:
    noise = noise_set(LIKE)
    assert (noise.name, noise.classes, noise.shape) == ("noise", ("noise",), (3, 8, 8))
    assert noise.images.shape == (10_000, 3, 8, 8)
    assert noise.labels.unique().tolist() == [0]


def test_the_seed_decides_every_pixel() -> None:
    assert torch.equal(noise_set(LIKE, 20, seed=3).images, noise_set(LIKE, 20, seed=3).images)
    assert not torch.equal(noise_set(LIKE, 20, seed=3).images, noise_set(LIKE, 20, seed=4).images)


def test_all_256_levels_are_equally_likely_and_neighbours_independent() -> None:
    pixels = noise_set(LIKE).images.double()
    counts = torch.bincount(pixels.long().flatten(), minlength=256).double()
    expected = pixels.numel() / 256
    chi_squared = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_squared < 360  # 255 degrees of freedom; exceeded with probability 2e-5
    pairs = torch.stack([pixels[..., :-1].flatten(), pixels[..., 1:].flatten()])
    assert abs(torch.corrcoef(pairs)[0, 1].item()) < 4 / pairs.shape[1] ** 0.5  # four standard errors


def test_no_noise_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1"):
        noise_set(LIKE, 0)
