"""What is said of the checkpoint on the disk when a job ends, and of a run that goes on elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsui.runs.checkpoint import save_state
from dsui.training.distributed import World
from dsui.training.resumption import how_to_go_on, is_lost_process, moved, place

GO_ON = "; go on with the same command and --resume (run folder "


def test_the_step_is_that_of_the_file_also_for_a_process_that_never_saved(tmp_path: Path) -> None:
    assert how_to_go_on(tmp_path) == f"there is no checkpoint yet{GO_ON}{tmp_path})"
    save_state(tmp_path / "state.pt", {"steps": 30})
    assert how_to_go_on(tmp_path) == f"the last checkpoint is of step 30{GO_ON}{tmp_path})"
    save_state(tmp_path / "state.pt", {"steps": 45}, tmp_path / "state.former.pt")
    (tmp_path / "state.pt").write_bytes(b"ruined")
    assert how_to_go_on(tmp_path) == f"the last checkpoint is of step 30{GO_ON}{tmp_path})"


@pytest.mark.parametrize(
    ("saved", "change"), [("processes", "processes 4 before, 1 now"), ("device", "device 4 before")]
)
def test_another_place_is_named(saved: str, change: str) -> None:
    now = place(World(), torch.device("cpu"))
    assert moved(now, now) is None
    sentence = moved({**now, saved: 4}, now)
    assert sentence is not None
    assert change in sentence


@pytest.mark.parametrize("saved", [None, {}, 5, {"unknown": 1}])
def test_checkpoints_that_do_not_name_their_place_are_not_remarked_on(saved: object) -> None:
    assert moved(saved, place(World(), torch.device("cpu"))) is None


def test_an_error_of_a_process_alone_is_its_own() -> None:
    error = RuntimeError("[gloo] Connection closed by peer")
    assert is_lost_process(error, World(0, 2))
    assert not is_lost_process(error, World())
    assert not is_lost_process(RuntimeError("shapes differ"), World(0, 2))
