"""Checkpoints under full and failing disks, damage and forgery; and how often one is written."""

from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
import stat
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from dsui.errors import RunError
from dsui.runs.checkpoint import Pacer, check_room, load_state, save_state

Usage = namedtuple("Usage", ["total", "used", "free"])


class Trap:
    """Pickled, it asks the reader to make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def saved(path: Path) -> Path:
    save_state(path, {"step": 1, "weights": torch.arange(3000.0)})
    return path


def refuses(path: Path) -> str:
    with pytest.raises(RunError) as caught:
        load_state(path, "cpu")
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


def test_state_comes_back_to_the_bit_with_all_a_run_needs(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "model": layer.state_dict(),
        "name": "a",
    }
    save_state(tmp_path / "state.pt", state)
    back = load_state(tmp_path / "state.pt", "cpu")
    assert back is not None
    assert back.keys() == state.keys()
    assert torch.equal(back["rng"], torch.get_rng_state())
    assert torch.equal(back["model"]["weight"], layer.weight)
    moments = zip(back["optimizer"]["state"].values(), optimizer.state_dict()["state"].values(), strict=True)
    assert all(torch.equal(here[name], there[name]) for here, there in moments for name in there)
    assert back["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert load_state(tmp_path / "state.pt", "cpu") is None


@pytest.mark.parametrize("written", [0, 1, 3, 8])
def test_full_disk_keeps_the_former_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    path = saved(tmp_path / "state.pt")
    honest: Any = torch.save

    class FullDisk:
        """Takes a few writes, as a disk that fills up does."""

        def __init__(self, stream: Any) -> None:
            self.stream, self.left = stream, written

        def write(self, content: Any) -> int:
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.left -= 1
            return int(self.stream.write(content))

        def flush(self) -> None:
            self.stream.flush()

    monkeypatch.setattr(torch, "save", lambda content, stream: honest(content, FullDisk(stream)))
    with pytest.raises(
        RunError, match=r"state\.pt could not be written \(No space left.*last good checkpoint.* is kept"
    ):
        save_state(path, {"step": 2, "weights": torch.zeros(3000)})
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]
    state = load_state(path, "cpu")
    assert state is not None
    assert state["step"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_real_full_device_is_told_in_one_sentence(tmp_path: Path, size: int) -> None:
    path = saved(tmp_path / "state.pt")
    path.with_name("state.pt.tmp").symlink_to("/dev/full")
    with pytest.raises(RunError, match="No space left on device"):
        save_state(path, {"weights": torch.zeros(size)})
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]


def test_a_disk_that_fails_to_sync_keeps_the_former_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "state.pt")
    before = path.read_bytes()

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(RunError, match="Input/output error"):
        save_state(path, {"step": 2})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]


def test_what_a_kill_left_of_a_checkpoint_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "state.pt.tmp").write_bytes(b"torn")
    saved(tmp_path / "state.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]


def test_a_file_is_on_the_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, rename = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def noted_rename(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    saved(tmp_path / "state.pt")
    assert events == ["file", "rename", "folder"]


@pytest.mark.parametrize("cut", [0.0, 0.1, 0.5, 0.99])
def test_truncated_state_is_refused(tmp_path: Path, cut: float) -> None:
    path = saved(tmp_path / "state.pt")
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content))])
    assert "not a whole checkpoint" in refuses(path)


def test_a_checkpoint_that_may_not_be_read_is_not_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path / "state.pt", {"steps": 3})

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(zipfile, "ZipFile", forbidden)
    with pytest.raises(RunError, match=r"state.pt cannot be read \(Permission denied\); repair this"):
        load_state(tmp_path / "state.pt", "cpu")


def test_one_wrong_bit_in_a_tensor_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "state.pt")
    content = bytearray(path.read_bytes())
    tensor = torch.arange(3000.0).numpy().tobytes()
    content[content.index(tensor) + 5000] ^= 1
    path.write_bytes(content)
    assert "not a whole checkpoint" in refuses(path)


def test_code_in_a_checkpoint_never_runs(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "sprung")
    zipped, plain = tmp_path / "zipped.pt", tmp_path / "plain.pt"
    torch.save({"schema": 1, "state": trap}, zipped)
    plain.write_bytes(pickle.dumps(trap))
    assert "not a whole checkpoint" in refuses(zipped)
    assert "not a whole checkpoint" in refuses(plain)
    assert not trap.path.exists()
    torch.load(zipped, weights_only=False)  # the trap works where it is not guarded against
    assert trap.path.exists()


def test_foreign_and_newer_checkpoints_are_told_apart(tmp_path: Path) -> None:
    foreign, newer = tmp_path / "foreign.pt", tmp_path / "newer.pt"
    torch.save([1, 2], foreign)
    torch.save({"schema": 99, "state": {}}, newer)
    assert "not written by dsui" in refuses(foreign)
    assert "written by a newer dsui (schema 99" in refuses(newer)


def test_room_is_asked_for_a_folder_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 20_000_000))
    path = tmp_path / "runs" / "a"
    check_room(path, 20_000_000)
    needs = re.escape(f"{path} needs about 1,350 MB for its checkpoints and its disk has 20 MB free")
    with pytest.raises(RunError, match=needs):
        check_room(path, 1_350_000_000)
    assert not list(tmp_path.iterdir())


def test_unwritable_folder_is_told_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)  # the mode of a folder does not bind a superuser
    with pytest.raises(RunError, match=r"cannot be written to \(Permission denied\)"):
        check_room(tmp_path, 1)


def test_pacer_waits_a_minute_or_the_time_that_makes_saving_two_percent() -> None:
    pacer = Pacer(now=100.0)
    assert not pacer.due(159.9)
    assert pacer.due(160.0)
    pacer.saved(duration=1.0, now=161.0)
    assert not pacer.due(220.9)
    assert pacer.due(221.0)
    pacer.saved(duration=10.0, now=300.0)
    assert not pacer.due(789.0)
    assert pacer.due(790.0)
    assert 10.0 / (790.0 - 290.0) == 0.02
