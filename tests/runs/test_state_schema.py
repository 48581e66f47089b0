"""A checkpoint without one of its parts, or with a part of another kind, is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsui.data.registry import load
from dsui.errors import RunError
from dsui.runs.state_schema import check_state
from dsui.training.distributed import World
from dsui.training.trainer import Trainer
from tests.support.digit_runs import CPU, digit_config


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer(digit_config("dsui", average="ema"), load("digits", "train"), CPU, World())


def test_the_state_of_a_trainer_is_a_state(trainer: Trainer) -> None:
    check_state(trainer.state())
    trainer.load(trainer.state())


@pytest.mark.parametrize("part", ["model", "optimizers", "average", "meter", "steps", "phase"])
def test_a_state_that_lacks_a_part_is_refused(trainer: Trainer, part: str) -> None:
    state = trainer.state()
    del state[part]
    with pytest.raises(RunError, match=rf"\({part} is absent; it must be .*\); train again with another --out\.$"):
        trainer.load(state)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("model", None),
        ("model", {"weight": 3}),
        ("optimizers", {}),
        ("optimizers", [{"state": {}}]),
        ("average", 3),
        ("average", {"other": torch.zeros(1)}),
        ("meter", {"loss": "x"}),
        ("steps", -1),
        ("steps", 1.5),
        ("steps", 10**20),
        ("phase", None),
        ("images", 3),
    ],
)
def test_a_part_of_another_kind_is_refused(trainer: Trainer, part: str, value: Any) -> None:
    with pytest.raises(RunError, match="the checkpoint is not one of this version of dsui"):
        trainer.load({**trainer.state(), part: value})
