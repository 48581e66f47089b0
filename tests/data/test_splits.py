"""Class splits: the published lists, lists by hand, and the two parts of a data set."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from PIL import Image

from dsui.data.dataset import MemorySet, Subset
from dsui.data.folder import folder_set
from dsui.data.splits import ClassSplit, class_split, known_part, unknown_part
from dsui.errors import DataError
from tests.support.official_files import CIFAR10_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from dsui.data.dataset import ImageSet


def numbered(name: str, classes: tuple[str, ...]) -> MemorySet:
    """Three images of every class; the level of an image is its class."""
    labels = torch.arange(len(classes)).repeat(3)
    images = labels.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2).contiguous()
    return MemorySet(name, classes, images, labels)


CIFAR10 = numbered("cifar10", tuple(CIFAR10_NAMES))
DATA = {
    "cifar10": CIFAR10,
    "svhn": numbered("svhn", tuple("0123456789")),
    "mnist": numbered("mnist", tuple("0123456789")),
    "tiny-imagenet": numbered("tiny-imagenet", tuple(f"n{label:08}" for label in range(200))),
}
SIZES = {("neal", name): (6, 4) for name in ("cifar10", "svhn", "mnist")} | {
    ("arpl", "cifar10"): (6, 4),
    ("arpl", "svhn"): (6, 4),
    ("arpl", "tiny-imagenet"): (20, 180),
}


def levels(images: ImageSet) -> list[int]:
    return images.read(torch.arange(len(images.labels)))[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(("author", "data"), SIZES)
def test_every_named_split_divides_all_classes_in_two(author: str, data: str) -> None:
    for trial in range(5):
        split = class_split(f"{author}-{trial}", DATA[data])
        assert (len(split.known), len(split.unknown)) == SIZES[author, data]
        assert sorted(split.known + split.unknown) == list(range(len(DATA[data].classes)))
        assert list(split.unknown) == sorted(split.unknown)


def test_neal_splits_know_the_classes_of_the_published_trials() -> None:
    known = ["012459", "035789", "015678", "345789", "012378"]
    for trial, digits in enumerate(known):
        for data in ("cifar10", "svhn", "mnist"):
            assert class_split(f"neal-{trial}", DATA[data]).known == tuple(map(int, digits))


def test_arpl_splits_keep_their_order_and_the_first_two_are_the_same_classes() -> None:
    assert class_split("arpl-3", CIFAR10).known == (8, 6, 1, 9, 0, 7)
    assert class_split("arpl-4", DATA["tiny-imagenet"]).known[:4] == (95, 6, 145, 153)
    for data in ("cifar10", "svhn"):
        first, second = (class_split(f"arpl-{trial}", DATA[data]) for trial in (0, 1))
        assert set(first.known) == set(second.known)
        assert first.known != second.known


def test_a_list_by_hand_takes_numbers_or_names_in_any_order() -> None:
    by_number, by_name = class_split("5, 0,2", CIFAR10), class_split("dog,airplane, bird", CIFAR10)
    assert by_number == by_name == ClassSplit("5,0,2", (5, 0, 2), (1, 3, 4, 6, 7, 8, 9))
    assert class_split("5,airplane,2", CIFAR10) == by_number


def test_class_names_go_before_numbers_where_all_items_are_names() -> None:
    own = numbered("folder:own", ("1", "2", "3"))
    assert class_split("1,2", own).known == (0, 1)
    assert class_split("0,2", own).known == (0, 2)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("neal-7", "cifar10 has no class split 'neal-7'; did you mean neal-"),
        ("arlp-2", "did you mean arpl-2"),
        ("everything", "has no class split 'everything'; choose neal-0 or .* or known classes by name or by number 0"),
        ("cat,dgo", "cifar10 has no class 'dgo'; did you mean dog"),
        ("0,10", "has no class '10'; choose .*by number 0 to 9"),
        ("0,-1", "has no class '-1'"),
        ("0,,2", "has no class ''"),
        ("0,2,0", "names a class twice"),
        ("cat,dog,3", "names a class twice"),
        ("cat", "'cat' knows 1 of 10 classes; choose 2 to 9"),
        ("0,1,2,3,4,5,6,7,8,9", "knows 10 of 10 classes"),
    ],
)
def test_an_impossible_split_is_refused_in_one_sentence(spec: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        class_split(spec, CIFAR10)


def test_named_splits_belong_to_their_data_sets() -> None:
    with pytest.raises(DataError, match="mnist has no class split 'arpl-0'"):
        class_split("arpl-0", DATA["mnist"])
    with pytest.raises(DataError, match="neal-0 does not fit the 3 classes that cifar10 has here"):
        class_split("neal-0", numbered("cifar10", ("airplane", "automobile", "bird")))
    with pytest.raises(DataError, match="has 200 classes and cifar10 has 10"):
        known_part(CIFAR10, class_split("arpl-0", DATA["tiny-imagenet"]))


def test_the_parts_hold_every_image_once_under_labels_in_list_order() -> None:
    split = class_split("arpl-2", CIFAR10)
    known, unknown = known_part(CIFAR10, split), unknown_part(CIFAR10, split)
    for part, classes in ((known, split.known), (unknown, split.unknown)):
        assert part.classes == tuple(CIFAR10.classes[label] for label in classes)
        assert part.labels.dtype == torch.int64
        assert levels(part) == [classes[label] for label in part.labels.tolist()]
        assert part.shape == CIFAR10.shape
    assert sorted(levels(known) + levels(unknown)) == sorted(levels(CIFAR10))
    assert (known.name, unknown.name) == ("cifar10:arpl-2:known", "cifar10:arpl-2:unknown")


def test_a_folder_is_split_without_decoding_its_files(tmp_path: Path) -> None:
    for level, name in enumerate(("ant", "bee", "cat", "dog")):
        folder = tmp_path / "train" / name
        folder.mkdir(parents=True)
        Image.new("L", (4, 4), level).save(folder / "1.png")
        Image.new("L", (4, 4), 10 + level).save(folder / "2.png")
    images = folder_set(tmp_path, "train", size=4)
    part = known_part(images, class_split("dog,bee", images))
    (tmp_path / "train" / "ant" / "1.png").unlink()
    assert isinstance(part, Subset)
    assert part.classes == ("dog", "bee")
    assert levels(part) == [1, 11, 3, 13]
    assert part.labels.tolist() == [1, 1, 0, 0]
    assert part.read(torch.tensor([3, 0]))[:, 0, 0, 0].tolist() == [13, 1]
    copy = pickle.loads(pickle.dumps(part))  # noqa: S301 - our own bytes
    assert levels(copy) == levels(part)


def test_the_view_of_a_set_in_memory_equals_its_indexed_copy() -> None:
    split = class_split("3,1", CIFAR10)
    part = known_part(CIFAR10, split)
    assert isinstance(part, MemorySet)
    indices = ((CIFAR10.labels == 3) | (CIFAR10.labels == 1)).nonzero().flatten()
    view = Subset(CIFAR10, indices, part.name, part.classes, part.labels)
    assert torch.equal(view.read(torch.arange(6)), part.images)
