"""A server in this process, of a tiny model whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from dsui.serving.app import create_app
from dsui.serving.settings import ServerSettings
from tests.support.onnx_model import write_onnx_model

Start = Callable[..., TestClient]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server of `tiny.onnx`; `model` are arguments of the file's maker, the others are settings."""
    with ExitStack() as ending:

        def begin(model: dict[str, Any] | None = None, **settings: Any) -> TestClient:
            file = tmp_path / "tiny.onnx"
            write_onnx_model(file, **(model or {}))
            app = create_app({"tiny": file}, ServerSettings(**settings))
            return ending.enter_context(TestClient(app, raise_server_exceptions=True))

        yield begin


@pytest.fixture
def client(start: Start) -> TestClient:
    return start()
