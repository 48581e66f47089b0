"""The draws of the study of doubles on photographs, and the folders it makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsui.data.dataset import MemorySet
from studies.photos_doubles import DRAWS, SHARES, classes_of, write


@pytest.mark.parametrize(("name", "count"), [("cifar100", 100), ("tiny-imagenet", 200)])
def test_known_and_foreign_classes_differ_and_draws_too(name: str, count: int) -> None:
    share = SHARES[name]
    draws = [classes_of(draw, count, share) for draw in range(DRAWS)]
    for known, foreign in draws:
        sizes = (len(known), len(foreign), len({*known, *foreign}))
        assert sizes == (share.known, share.foreign, share.known + share.foreign)
    assert len({tuple(known) for known, _ in draws}) == DRAWS


def test_a_draw_becomes_folders_of_its_own_and_of_foreign_images(tmp_path: Path) -> None:
    share = SHARES["cifar100"]
    classes = tuple(f"class {number}" for number in range(share.known + share.foreign))
    sets = []
    for count in (share.photographs + 1, 2):
        labels = torch.arange(len(classes)).repeat_interleave(count)
        sets.append(MemorySet("cifar100", classes, torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8), labels))
    write(0, "cifar100", sets[0], sets[1], tmp_path)
    known, foreign = classes_of(0, len(classes), share)
    for folder, chosen, count in (
        ("cifar100-draw/train", known, share.photographs),
        ("cifar100-draw/test", known, 2),
        ("other-classes", foreign, 2),
    ):
        found = {place.name: len(list(place.iterdir())) for place in (tmp_path / folder).iterdir()}
        assert found == {classes[label]: count for label in chosen}
