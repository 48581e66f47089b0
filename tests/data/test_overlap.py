"""Which class names mean the same thing, and what a user reads about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from dsui.data.dataset import MemorySet
from dsui.data.overlap import overlap_warning, shared_classes

if TYPE_CHECKING:
    from pathlib import Path

WORDS = {
    "n01443537": "goldfish, Carassius auratus",
    "n02125311": "cougar, puma, catamount, mountain lion, painter",
    "n02123045": "tabby, tabby cat",
    "n04275548": "spider web, spider's web",
}


def named_set(*classes: str, name: str = "home") -> MemorySet:
    return MemorySet(name, classes, torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize(
    ("home", "foreign"),
    [
        ("truck", "pickup_truck"),
        ("pickup_truck", "Trucks"),
        ("0", "0"),
        ("goldfish", "goldfish, Carassius auratus"),
        ("cat", "tabby, tabby cat"),
        ("pig", "hog, grunter, pig"),
        ("Shirt", "T-shirt/top"),
        ("bus", "school bus"),
        ("house of cards", "House Of Card"),
    ],
)
def test_names_of_the_same_thing_match_both_ways(home: str, foreign: str) -> None:
    assert shared_classes(named_set("zebra", home), named_set(foreign)) == ((home, foreign),)
    assert shared_classes(named_set(foreign), named_set("zebra", home)) == ((foreign, home),)


@pytest.mark.parametrize(
    ("home", "foreign"),
    [
        ("spider", "spider web, spider's web"),
        ("lion", "cougar, puma, catamount, mountain lion"),
        ("ship", "airship"),
        ("bird", "birdhouse"),
        ("0", "10"),
        ("5", "house 5"),
        ("the", "the"),
        ("of", "king of"),
        ("glass", "glas"),
        ("_", "-"),
    ],
)
def test_names_of_other_things_do_not_match(home: str, foreign: str) -> None:
    assert shared_classes(named_set(home), named_set(foreign)) == ()
    assert shared_classes(named_set(foreign), named_set(home)) == ()


def test_wordnet_ids_are_translated_by_the_file_of_tiny_imagenet(tmp_path: Path) -> None:
    home, foreign = named_set("lion", "cat", "spider", "fish"), named_set(*WORDS, name="tiny-imagenet")
    warning = overlap_warning(home, foreign, tmp_path)
    assert warning is not None
    assert "share classes, because those of tiny-imagenet are WordNet ids" in warning
    assert "tiny-imagenet-200/words.txt" in warning
    assert len(shared_classes(foreign, foreign, tmp_path)) == 4
    (tmp_path / "tiny-imagenet-200").mkdir()
    words = tmp_path / "tiny-imagenet-200" / "words.txt"
    words.write_text("".join(f"{code}\t{name}\n" for code, name in WORDS.items()))
    assert shared_classes(home, foreign, tmp_path) == (("cat", "tabby, tabby cat"),)
    assert overlap_warning(named_set("0"), foreign, tmp_path) is None


def test_the_warning_names_five_pairs_at_most_and_counts_all() -> None:
    digits = named_set(*"0123456789", name="svhn")
    assert overlap_warning(digits, named_set("cat", name="cifar10")) is None
    warning = overlap_warning(digits, named_set(*"987654", name="mnist"))
    assert warning == (
        "svhn and mnist share classes by name (6: 4 / 4, 5 / 5, 6 / 6, 7 / 7, 8 / 8, ...); "
        "images of these are not foreign, so leave them out or read the result with care."
    )
    assert "(1: cat / tabby)" in (overlap_warning(named_set("cat"), named_set("tabby, tabby cat")) or "")
