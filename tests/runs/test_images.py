from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsui.data.dataset import ImageSet, MemorySet
from dsui.data.folder import FolderSet
from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.runs.config import RunConfig
from dsui.runs.images import held_out_images, known_images, training_images
from dsui.runs.recipe_file import load_recipe

RUN = RunConfig(
    data="digits", backbone="small", method="msp", seed=0, size=8, channels=1, recipe=load_recipe("demo", "digits")
)


def numbered(labels: list[int]) -> MemorySet:
    """Images that hold their own number, to be told apart by."""
    numbers = torch.arange(len(labels))
    pixels = torch.stack([numbers // 256, numbers % 256], 1).to(torch.uint8).view(-1, 1, 1, 2)
    return MemorySet(
        "numbered", tuple(f"class {label}" for label in range(max(labels) + 1)), pixels, torch.tensor(labels)
    )


def numbers(images: ImageSet) -> Tensor:
    pixels = images.read(torch.arange(len(images.labels))).long().flatten(1)
    return 256 * pixels[:, 0] + pixels[:, 1]


UNEVEN = numbered(300 * [0] + 100 * [1] + 7 * [2] + 2 * [3])


@pytest.mark.parametrize("share", [0.001, 0.1, 0.25, 0.5, 0.999])
def test_training_and_held_out_images_are_disjoint_and_together_all(share: float) -> None:
    run = replace(RUN, held_out=share)
    trained, held = (numbers(part(run, UNEVEN)) for part in (training_images, held_out_images))
    assert set(trained.tolist()).isdisjoint(held.tolist())
    assert sorted([*trained.tolist(), *held.tolist()]) == list(range(409))
    assert all(first < second for part in (trained, held) for first, second in pairwise(part.tolist()))


def test_every_class_gives_the_same_share_and_keeps_at_least_one_image() -> None:
    held = held_out_images(replace(RUN, held_out=0.1), UNEVEN)
    assert torch.bincount(held.labels).tolist() == [30, 10, 1, 1]
    most = held_out_images(replace(RUN, held_out=0.999), UNEVEN)
    assert torch.bincount(most.labels).tolist() == [299, 99, 6, 1]
    assert torch.equal(held.labels, UNEVEN.labels[numbers(held)])
    assert held.classes == UNEVEN.classes


def test_the_held_out_images_are_the_same_for_every_seed_method_and_recipe() -> None:
    whole = load("digits", "train")
    runs = [
        replace(RUN, held_out=0.2),
        replace(RUN, held_out=0.2, seed=7, method="dsui", recipe=load_recipe("demo", "digits", {"batch": 32})),
    ]
    held = [held_out_images(run, whole) for run in runs]
    every = torch.arange(200)
    assert len(held[0].labels) == 200
    assert torch.equal(held[0].read(every), held[1].read(every))
    torch.manual_seed(123)
    assert torch.equal(held_out_images(runs[0], whole).read(every), held[0].read(every))


def test_only_known_classes_are_trained_on_and_held_out() -> None:
    run = replace(RUN, known="3,1,5", held_out=0.1)
    whole = load("digits", "train")
    trained, held = training_images(run, whole), held_out_images(run, whole)
    assert trained.classes == held.classes == ("3", "1", "5")
    assert torch.bincount(trained.labels).tolist() == [90, 90, 90]
    assert torch.bincount(held.labels).tolist() == [10, 10, 10]
    threes = whole.read((whole.labels == 3).nonzero().flatten())
    known = known_images(run, whole)
    assert torch.equal(known.read((known.labels == 0).nonzero().flatten()), threes)
    assert "held-out" in held.name


def test_a_run_without_choices_trains_on_the_set_as_it_is() -> None:
    whole = load("digits", "train")
    assert training_images(RUN, whole) is whole


def test_images_that_are_read_from_files_are_not_decoded_to_be_chosen() -> None:
    labels = torch.arange(20) % 2
    absent = tuple(Path(f"no-such-file-{number}.png") for number in range(20))
    files = FolderSet("folder:x", ("a", "b"), labels, absent, 8, 1, ())
    held = held_out_images(replace(RUN, held_out=0.2), files)
    assert torch.bincount(held.labels).tolist() == [2, 2]
    assert held.shape == (1, 8, 8)


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_share_that_is_none_is_told(share: float) -> None:
    with pytest.raises(DsuiError, match=r"--calibration .* must be a share .* between 0 and 1, as in 0\.1"):
        training_images(replace(RUN, held_out=share), UNEVEN)


def test_a_run_that_held_nothing_out_says_so() -> None:
    with pytest.raises(DsuiError, match=r"held no images out; train it with --calibration 0\.1"):
        held_out_images(RUN, UNEVEN)


def test_the_only_image_of_a_class_is_trained_on_and_other_classes_still_give_some() -> None:
    run, images = replace(RUN, held_out=0.5), numbered([0, 0, 0, 0, 1])
    assert training_images(run, images).labels.tolist() == [0, 0, 1]
    assert held_out_images(run, images).labels.tolist() == [0, 0]
    with pytest.raises(DsuiError, match=r"no class of .* has two training images, so none can be held out"):
        training_images(run, numbered([0, 1]))
