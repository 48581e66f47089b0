"""Pipes and devices are refused without being opened, and files that are too large without being read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dsui.regular_file import check_regular, open_regular, read_regular


def test_a_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 7) == b"content"
    with open_regular(tmp_path / "file") as stream:
        assert stream.read(3) == b"con"
    check_regular(tmp_path / "file")


def test_a_larger_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="it holds 7 bytes, more than the 6 it may hold"):
        read_regular(tmp_path / "file", 6)


@pytest.mark.parametrize("attempt", [check_regular, open_regular, lambda path: read_regular(path, 100)])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, attempt: object) -> None:
    assert callable(attempt)
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer for ever
    with pytest.raises(OSError, match="it is a pipe and not a file"):
        attempt(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a device and not a file"):
        attempt(Path(os.devnull))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        with pytest.raises(OSError, match="it is a socket and not a file"):
            attempt(tmp_path / "socket")
    with pytest.raises(IsADirectoryError):
        attempt(tmp_path)
    with pytest.raises(FileNotFoundError):
        attempt(tmp_path / "absent")


def test_a_pipe_put_in_the_place_of_a_file_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    status = os.stat(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda _: status)  # the check before it is opened sees a file
    with pytest.raises(OSError, match="it is a pipe and not a file"):
        open_regular(tmp_path / "pipe")
