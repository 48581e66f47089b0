from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from dsui.outputs import PER_SAMPLE, SHARED, Outputs


def everything(count: int = 6, seed: int = 0) -> Outputs:
    torch.manual_seed(seed)
    return Outputs(
        features=torch.randn(count, 4),
        logits=torch.randn(count, 3),
        labels=torch.arange(count) % 3,
        norm=torch.rand(count),
        class_scores=torch.randn(count, 3),
        log_joint=torch.randn(count, 3),
        samples=torch.randn(count, 5, 3),
        own={"vacuity": torch.rand(count), "mutual_information": torch.rand(count)},
        weight=torch.ones(3, 4),
        bias=torch.ones(3),
    )


def same(first: Outputs, second: Outputs) -> bool:
    ours, theirs = first.tensors(), second.tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_every_part_is_either_one_per_image_or_shared_by_all() -> None:
    assert {field.name for field in fields(Outputs)} == {*PER_SAMPLE, *SHARED, "own"}


def test_tensors_and_of_are_each_others_reverse() -> None:
    assert same(Outputs.of(everything().tensors()), everything())
    assert set(everything().tensors()) == {*PER_SAMPLE, *SHARED, "own.vacuity", "own.mutual_information"}
    bare = Outputs(torch.zeros(2, 4), torch.zeros(2, 3))
    assert set(bare.tensors()) == {"features", "logits"}
    assert same(Outputs.of(bare.tensors()), bare)


def test_images_cut_apart_and_joined_are_the_same_and_share_the_last_layer() -> None:
    whole = everything()
    parts = [whole.select(torch.arange(2)), whole.select(torch.arange(2, 6))]
    assert [len(part) for part in parts] == [2, 4]
    assert parts[0].weight is not None
    assert parts[0].weight.shape == (3, 4)
    assert same(Outputs.concatenated(iter(parts)), whole)


def test_select_takes_every_part_of_the_chosen_images() -> None:
    whole, chosen = everything(), torch.tensor([4, 1])
    found = whole.select(chosen).tensors()
    for name, value in whole.tensors().items():
        assert torch.equal(found[name], value if name in SHARED else value[chosen]), name


def test_nothing_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="no outputs to join"):
        Outputs.concatenated([])


def test_probabilities_and_predictions_are_those_of_the_logits() -> None:
    whole = everything()
    assert whole.probabilities.dtype == torch.float64
    torch.testing.assert_close(whole.probabilities.sum(1), torch.ones(6, dtype=torch.float64))
    assert torch.equal(whole.predictions, whole.probabilities.argmax(1))


def test_to_moves_every_part() -> None:
    moved = everything().to("meta").tensors()
    assert moved.keys() == everything().tensors().keys()
    assert {value.device.type for value in moved.values()} == {"meta"}
