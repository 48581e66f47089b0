from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.pseudo import blends, gaussian, patches, pseudo_outliers
from dsui.data.registry import PSEUDO
from dsui.errors import DataError


def images(count: int = 60, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=generator)
    return torch.randint(0, 256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8), labels


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_blend_is_the_mean_of_the_image_and_one_of_another_class() -> None:
    pixels, labels = images()
    made = blends(pixels, labels, drawn())
    for image, label, blend in zip(pixels, labels, made, strict=True):
        means = ((image.int() + pixels.int()) / 2).round()
        partners = (means == blend).flatten(1).all(1).nonzero().flatten()
        assert len(partners) == 1
        assert labels[partners[0]] != label


def test_every_image_of_the_other_classes_can_be_a_partner() -> None:
    pixels = torch.arange(0, 80, 8, dtype=torch.uint8).view(10, 1, 1, 1)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 2])
    found = {blends(pixels, labels, drawn(seed))[1].item() for seed in range(300)}
    assert found == {(8 + 8 * other) // 2 for other in range(10) if labels[other] != 1}


def test_patches_are_the_image_in_another_order() -> None:
    pixels, labels = images()
    made = patches(pixels, labels, drawn())

    def cut(image: Tensor) -> list[bytes]:
        return [
            image[:, row : row + 2, column : column + 2].numpy().tobytes()
            for row in range(0, 8, 2)
            for column in range(0, 8, 2)
        ]

    for image, shuffled in zip(pixels, made, strict=True):
        assert sorted(cut(image)) == sorted(cut(shuffled))
        assert cut(image) != cut(shuffled)


def test_gaussian_noise_has_its_moments_and_nothing_of_the_image() -> None:
    pixels, labels = images(400)
    values = gaussian(pixels, labels, drawn()).double() / 255
    assert values.mean().item() == pytest.approx(0.5, abs=0.005)  # 77,000 pixels: standard error 0.001
    assert values.std().item() == pytest.approx(0.24, abs=0.01)  # 1/4, less what is clipped
    assert torch.equal(gaussian(255 - pixels, labels, drawn()), gaussian(pixels, labels, drawn()))


@pytest.mark.parametrize("kind", PSEUDO)
def test_a_seed_makes_the_same_images_again(kind: str) -> None:
    pixels, labels = images()
    home = MemorySet("home", ("a", "b", "c"), pixels, labels)
    first, again, other = (pseudo_outliers(kind, home, seed) for seed in (0, 0, 1))
    assert first.name == kind
    assert first.images.shape == pixels.shape
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


def test_what_cannot_be_made_is_a_sentence() -> None:
    pixels, labels = images()
    with pytest.raises(DataError, match="blends need images of two classes"):
        blends(pixels, torch.zeros_like(labels), drawn())
    with pytest.raises(DataError, match="6 x 6 pixels cannot be cut into 4 x 4"):
        patches(pixels[:, :, :6, :6], labels, drawn())
