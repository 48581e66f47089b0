from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from dsui.backbones import spec

torch.set_num_threads(1)  # threads of small tensors wait for each other longer than they work on a busy machine
torch.set_warn_always(True)  # a warning given only once would fail whichever test happens to run first
settings.register_profile("dsui", deadline=None)  # a busy machine is no failure
settings.load_profile("dsui")


@pytest.fixture(autouse=True, scope="module")
def functions_named_in_a_module_are_forgotten_after_it() -> Iterator[None]:
    """A process keeps which functions of the user's it may call; another module's tests begin without any."""
    yield
    spec._allowed.clear()
