"""A model is exchanged while requests are on their way: each is answered by one model, and alarms are those of one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dsui.serving.app import create_app
from dsui.serving.served_model import ServedModel
from dsui.serving.serving_state import ServingState
from tests.support.onnx_model import write_onnx_model
from tests.support.server import PATIENCE, png

OTHER = ("ant", "bee", "wasp")


class Served:
    """An application with one model, in this event loop."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tiny.onnx"
        write_onnx_model(self.file)
        self.app: FastAPI = create_app({"tiny": self.file})
        self.state: ServingState = self.app.state.serving
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://here")

    @property
    def version(self) -> str:
        return self.state.slot(None).current.version

    async def exchange(self, **model: Any) -> None:
        write_onnx_model(self.file, **(model or {"classes": OTHER}))
        assert await self.state.slot(None).reload()
        await asyncio.sleep(0.1)  # the old one ends as soon as nobody waits for it

    async def metrics(self) -> list[str]:
        return (await self.client.get("/metrics")).text.splitlines()


def test_an_image_that_is_decoded_during_a_reload_is_answered_with_the_version_that_predicted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloaded, decoding = threading.Event(), threading.Event()
    prepare = ServedModel.prepare

    def slow(*words: Any) -> Any:
        decoding.set()
        assert reloaded.wait(PATIENCE)
        return prepare(*words)

    async def run() -> None:
        served = Served(tmp_path)
        served.state.start()
        before = served.version
        monkeypatch.setattr(ServedModel, "prepare", slow)
        asking = asyncio.create_task(served.client.post("/v1/predict", content=png()))
        await asyncio.to_thread(decoding.wait, PATIENCE)
        await served.exchange()
        reloaded.set()
        found = (await asking).json()
        assert served.version != before == found["version"]
        assert found["images"][0]["label"] == "owl"
        again = (await served.client.post("/v1/predict", content=png())).json()
        assert (again["version"], again["images"][0]["label"]) == (served.version, "wasp")
        await served.state.close()

    asyncio.run(run())


def test_a_tensor_that_arrives_during_a_reload_is_answered_by_the_new_model(tmp_path: Path) -> None:
    tensor = {"name": "images", "datatype": "UINT8", "shape": [1, 8, 8, 3], "data": [9] * 192}

    async def run() -> None:
        served = Served(tmp_path)
        served.state.start()

        async def body() -> AsyncIterator[bytes]:
            content = json.dumps({"inputs": [tensor]}).encode()
            yield content[:20]
            await served.exchange()
            yield content[20:]

        found = await asyncio.wait_for(served.client.post("/v2/models/tiny/infer", content=body()), PATIENCE)
        assert (found.status_code, found.json()["model_version"]) == (200, served.version)
        await served.state.close()

    asyncio.run(run())


def test_alarms_stay_with_the_same_file_and_begin_anew_with_another(tmp_path: Path) -> None:
    async def run() -> None:
        served = Served(tmp_path)
        served.state.start()
        on, off = (f'dsui_monitor_alarm{{model="tiny",monitor="acceptance"}} {each}' for each in ("1.0", "0.0"))
        assert off in await served.metrics(), "it is there before the first image"
        grey = png((128, 128, 128))
        for _ in range(40):
            await served.client.post("/v1/predict", content=grey)
        assert on in await served.metrics()
        await served.exchange(classes=("cat", "dog", "owl"))
        assert on in await served.metrics()
        await served.exchange()
        assert off in await served.metrics()
        await served.exchange(limits=())
        assert not [line for line in await served.metrics() if line.startswith("dsui_monitor_alarm") and "acc" in line]
        await served.state.close()

    asyncio.run(run())
