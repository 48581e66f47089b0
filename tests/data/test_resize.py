"""Published sets at a smaller size: the same images as when they are foreign to a classifier of that size."""

from __future__ import annotations

import pytest
import torch

from dsui.data.dataset import MemorySet
from dsui.data.foreign import as_foreign
from dsui.data.resize import BLOCK, made_smaller
from dsui.errors import DataError
from tests.data.test_foreign import everything, random_set


@pytest.mark.parametrize("count", [5, BLOCK + 3])
def test_a_smaller_set_has_the_images_that_it_has_as_a_foreign_set(count: int) -> None:
    images = random_set(3, 64, 64, count)
    smaller = made_smaller(images, 32)
    assert isinstance(smaller, MemorySet)
    assert (smaller.name, smaller.classes, smaller.shape) == (images.name, images.classes, (3, 32, 32))
    assert torch.equal(smaller.labels, images.labels)
    foreign = as_foreign(images, random_set(3, 32, 32, name="home"))
    assert torch.equal(smaller.images, foreign.read(everything(images)))


def test_a_set_of_that_size_is_handed_back_untouched() -> None:
    images = random_set(1, 8, 8)
    assert made_smaller(images, 8) is images


@pytest.mark.parametrize(
    ("size", "why"), [(9, "size 9 would enlarge them; choose 1 to 8"), (0, "size 0 is not a number of pixels")]
)
def test_images_are_never_enlarged(size: int, why: str) -> None:
    with pytest.raises(DataError, match=rf"the images of random have 8x8 pixels, and {why}"):
        made_smaller(random_set(3, 8, 8), size)
