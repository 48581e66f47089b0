"""The module that training compiles, for a method without copies of its images."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from dsui.methods.method import Method
from dsui.runs.recipe_file import load_recipe
from dsui.training.copies import Copies
from dsui.training.step import LossModule

FIRST_STEP = torch.zeros((), dtype=torch.int64)


def plain_loss(method: Method, autocast: AbstractContextManager[object] | None = None) -> LossModule:
    """Call it with images, labels and `FIRST_STEP`."""
    copies = Copies(method, load_recipe("demo", "digits"), num_classes=10, seed=0, steps=1, device=torch.device("cpu"))
    return LossModule(method, copies, autocast or nullcontext())
