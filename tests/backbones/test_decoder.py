"""Decoded images: their size, range and what they can learn; areas against PyTorch's pooling."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dsui.backbones.decoder import SIDE, Decoder, Pixels, decoder_width, resize


def test_it_has_the_published_layers() -> None:
    published = Decoder(100, 3)
    convolutions = [
        tuple(layer.weight.shape) for layer in published.modules() if isinstance(layer, torch.nn.ConvTranspose2d)
    ]
    assert convolutions == [(512, 512, 4, 4), (512, 256, 4, 4), (256, 128, 4, 4), (128, 3, 4, 4)]
    images = published(torch.randn(2, 100) * 100)
    assert images.shape == (2, 3, SIDE, SIDE)
    assert images.min() >= 0
    assert images.max() <= 1


def test_any_number_of_features_has_a_width() -> None:
    assert [decoder_width(features, 4) for features in (3, 60, 128, 512, 2048)] == [8, 8, 32, 128, 128]
    for features in (3, 60):
        assert Decoder(features, 1, decoder_width(features, 4))(torch.zeros(1, features)).isfinite().all()


def test_it_learns_to_draw_an_image_for_each_code() -> None:
    torch.manual_seed(0)
    targets, codes = torch.rand(4, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3), torch.eye(4)
    decoder = Decoder(4, 1, width=8)
    optimizer = torch.optim.Adam(decoder.parameters(), 1e-2)
    before = (decoder(codes) - targets).abs().mean().item()
    for _ in range(60):
        optimizer.zero_grad()
        F.mse_loss(decoder(codes), targets).backward()
        optimizer.step()
    assert (decoder(codes) - targets).abs().mean() < before / 5


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (5, 32), (64, 48), (1, 1)])
def test_resizing_is_adaptive_average_pooling(size: tuple[int, int]) -> None:
    images = torch.rand(3, 2, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(resize(images, *size), F.adaptive_avg_pool2d(images, size))


def test_an_image_of_the_right_size_is_left_alone() -> None:
    images = torch.rand(1, 1, 7, 9)
    assert resize(images, 7, 9) is images


def test_pixels_are_what_standardising_began_with() -> None:
    pixels, image = Pixels((0.4, 0.5, 0.6), (0.2, 0.5, 1.0)), torch.rand(2, 3, 4, 4)
    seen = pixels.to_inputs(image)
    torch.testing.assert_close(seen[:, 1], image[:, 1] * 2 - 1)
    torch.testing.assert_close(pixels.from_inputs(seen), image)
    assert not pixels.state_dict()
