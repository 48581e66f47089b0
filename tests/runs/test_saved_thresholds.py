"""Thresholds in the folder of a run: whole, of its own weights, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from dsui.errors import DsuiError, RunError
from dsui.limits import Criterion, Limit
from dsui.runs.acceptance import Thresholds
from dsui.runs.model import fingerprint
from dsui.runs.saved_thresholds import THRESHOLDS, save_thresholds, saved_tensors, saved_thresholds
from tests.support.digit_runs import calibrated, own_copy, run

CHOSEN = Thresholds((Limit("uncertainty", 1 / 3, "errors"),), Criterion(0.95), 0.955, 0.01, 200)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return own_copy(calibrated(), tmp_path / "run")


def test_a_run_keeps_the_thresholds_that_were_saved_last_and_nothing_else_changes(copy: Path) -> None:
    assert saved_thresholds(copy) is None
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    later = Thresholds(CHOSEN.limits, Criterion(risk=0.05), 0.9, 0.02, 200, "knn")
    assert save_thresholds(copy, CHOSEN, fingerprint(copy)) == copy / THRESHOLDS
    assert saved_thresholds(copy) == CHOSEN
    save_thresholds(copy, later, fingerprint(copy), {"_bank": torch.ones(3, 2)})
    assert saved_thresholds(copy) == later
    assert torch.equal(saved_tensors(copy)["_bank"], torch.ones(3, 2))
    (copy / THRESHOLDS).unlink()
    assert {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()} == before


def test_thresholds_of_other_weights_are_refused(copy: Path) -> None:
    save_thresholds(copy, CHOSEN, fingerprint(run("dsui", seed=1, held_out=0.2)))
    for read in (saved_thresholds, saved_tensors):
        with pytest.raises(RunError, match=r"chosen for other weights than .*choose them again with `dsui"):
            read(copy)


@pytest.mark.parametrize("place", [0, 20, 300, -1])
def test_a_damaged_file_is_refused_and_not_taken_for_none(copy: Path, place: int) -> None:
    save_thresholds(copy, CHOSEN, fingerprint(copy), {"_bank": torch.ones(3, 2)})
    content = bytearray((copy / THRESHOLDS).read_bytes())
    content[place] ^= 1
    (copy / THRESHOLDS).write_bytes(content)
    with pytest.raises(RunError, match=r"cannot be used .*choose them again .*or delete the file"):
        saved_tensors(copy)
    (copy / THRESHOLDS).write_bytes(content[:50])
    with pytest.raises(RunError, match="the file is damaged or of another dsui"):
        saved_thresholds(copy)


def test_a_folder_that_cannot_be_written_to_is_told_and_the_former_thresholds_stay(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_thresholds(copy, CHOSEN, fingerprint(copy))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DsuiError, match=r"cannot be written .*No space left on device.*the thresholds are not saved"):
        save_thresholds(copy, Thresholds(CHOSEN.limits, Criterion(0.8), 0.8, 0.0, 200), fingerprint(copy))
    assert saved_thresholds(copy) == CHOSEN
    assert [path.name for path in copy.glob(f"{THRESHOLDS}*")] == [THRESHOLDS]
