"""Pickles on which Python would work for ever are refused at once, before anything that they name is made."""

from __future__ import annotations

import io
import os
import pickle
import time
import zipfile
from pathlib import Path

import pytest
import torch

from dsui.errors import RunError
from dsui.plain_pickle import check_pickle
from dsui.runs.checkpoint import load_state, save_state

STATE = {"model": {"a": torch.zeros(2, 3)}, "optimizers": [{"state": {0: {"b": torch.ones(1)}}, "betas": (0.9, 0.999)}]}


def nested(begin: bytes, end: bytes) -> bytes:
    """A tuple of 2^99 parts: in each step, a tuple that holds the former one twice."""
    return b"\x80\x02" + begin + b"".join(b"q%ch%c\x86" % (i, i) for i in range(1, 100)) + end


@pytest.mark.parametrize(
    "content",
    [
        nested(b"}K\x01", b"K\x01s."),
        nested(b"cbuiltins\nset\nK\x01", b"\x85R."),
        b"\x80\x02(" + b"K\x01" * 17 + b"t.",
        b"\x80\x02]}b.",
        b"\x80\x04\x8f(K\x01\x90.",
    ],
)
def test_what_is_beyond_the_limits_is_refused_at_once(content: bytes, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises((pickle.UnpicklingError, KeyError)):
        check_pickle(content)
    save_state(tmp_path / "state.pt", STATE)
    with zipfile.ZipFile(tmp_path / "state.pt") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "state.pt", "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, content if name.endswith("data.pkl") else part)
    with pytest.raises(RunError, match="is not a whole checkpoint of dsui"):
        load_state(tmp_path / "state.pt", "cpu")
    assert time.monotonic() - began < 5  # for ever without the limits


def test_nothing_is_run_and_tensors_pass(tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "trace"),)

    check_pickle(pickle.dumps(Touch(), protocol=2))
    assert not (tmp_path / "trace").exists()
    stream = io.BytesIO()
    torch.save(STATE, stream)
    with zipfile.ZipFile(stream) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("data.pkl"))
        check_pickle(archive.read(name))


def test_a_pipe_in_the_place_of_a_checkpoint_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.pt")
    with pytest.raises(RunError, match=r"state\.pt is not a whole checkpoint|cannot be read"):
        load_state(tmp_path / "state.pt", "cpu")
