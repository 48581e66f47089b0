"""What is served: a file as it is, or a run, which is exported first and leaves nothing behind."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsui.errors import DsuiError
from dsui.runtime import OnnxPredictor
from dsui.serving.server import listen
from dsui.serving.settings import ServerSettings
from dsui.serving.source import exported, model_name
from tests.support.command_line import dsui
from tests.support.onnx_model import write_onnx_model


def test_a_model_is_called_as_its_file_or_its_run() -> None:
    assert model_name(Path("models/cats.v2.onnx")) == "cats.v2"
    assert model_name(Path("runs/mine/")) == "mine"


def test_a_file_is_served_as_it_is(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "tiny.onnx")
    with exported(tmp_path / "tiny.onnx") as file:
        assert file == tmp_path / "tiny.onnx"
    assert file.is_file()


def test_a_run_is_exported_and_the_file_is_gone_afterwards(tmp_path: Path) -> None:
    settings = ["--recipe", "demo", "--set", "epochs=1", "--method", "msp", "--calibration", "0.1", "--device", "cpu"]
    words = ["train", "--data", "digits", "--backbone", "small", *settings, "--out", str(tmp_path / "run"), "--quiet"]
    assert dsui(*words).exit_code == 0
    with exported(tmp_path / "run") as file:
        prediction = OnnxPredictor(file).predict(np.zeros((2, 8, 8, 1), dtype=np.uint8))
        assert len(prediction) == 2
        assert file.stem == "run"
    assert not file.parent.exists()


def test_what_the_export_says_is_what_the_user_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "a note\ndsui: this method samples; choose another.\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(DsuiError, match=r"^this method samples; choose another\.$"), exported(tmp_path):
        pass


@pytest.mark.parametrize("name", ["missing", "missing.onnx"])
def test_what_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    result = dsui("serve", tmp_path / name)
    assert result.exit_code == 1
    assert name in str(result.exception)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(DsuiError, match="make the queue longer"):
        ServerSettings(files=10, queue=5)
    with pytest.raises(DsuiError, match="at least 1"):
        ServerSettings(batch=0)
    assert "s3cret" not in repr(ServerSettings(token="s3cret"))  # noqa: S106


def test_a_listener_is_known_to_be_tcp_so_that_answers_do_not_wait_for_acknowledgements() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        port = listener.getsockname()[1]
        with pytest.raises(DsuiError, match=f"127.0.0.1:{port} cannot be listened on"):
            listen("127.0.0.1", port)
