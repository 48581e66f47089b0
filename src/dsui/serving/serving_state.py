"""What the routes of a server share: its models, its limits, its counters, and whether it is about to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request

from dsui.errors import DsuiError
from dsui.serving.body import BodyBudget
from dsui.serving.metrics import Metrics
from dsui.serving.pixel_budget import PixelBudget
from dsui.serving.refusal import CLOSE, Refusal, busy
from dsui.serving.settings import ServerSettings
from dsui.serving.slot import ModelSlot
from dsui.spelling import unknown_name

Answer = TypeVar("Answer")


class ServingState:
    """Loads every model at once; a DsuiError says which one cannot be used."""

    def __init__(self, models: Mapping[str, Path], settings: ServerSettings) -> None:
        if not models:
            raise DsuiError("there is no model to serve; name a file model.onnx, or the folder of a run.")
        self.settings, self.metrics, self.draining = settings, Metrics(), False
        self.bodies, self.pixels = BodyBudget(settings.bodies), PixelBudget(settings.pixels)
        self.decoders = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="dsui-decode")
        self.slots = {name: ModelSlot(name, source, settings, self.metrics) for name, source in models.items()}

    def slot(self, name: str | None) -> ModelSlot:
        """The model of that name; the first where none is named."""
        if name is None:
            return next(iter(self.slots.values()))
        if (found := self.slots.get(name)) is None:
            raise Refusal(404, unknown_name("model", name, self.slots))
        return found

    def deadline(self) -> float:
        """When a request that begins now must be answered, in the time of the event loop."""
        return asyncio.get_running_loop().time() + self.settings.seconds

    async def in_time(self, request: Request, work: Coroutine[Any, Any, Answer], deadline: float) -> Answer:
        """What the work gives, unless the deadline passes or the client leaves; the work is then given up."""
        doing = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_left(request))
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Refusal(499, "the client left.", CLOSE)
            return doing.result()
        except TimeoutError as error:
            raise busy(f"had no time for this within {self.settings.seconds:g} s", 1) from error
        finally:
            doing.cancel()
            leaving.cancel()

    def start(self) -> None:
        """In the event loop, before the first request."""
        for slot in self.slots.values():
            slot.current.batcher.start()

    async def reload(self) -> None:
        """Every model from its file."""
        for slot in self.slots.values():
            await slot.reload()

    async def close(self) -> None:
        """Answer what was let in, and end."""
        for slot in self.slots.values():
            await slot.close()
        self.decoders.shutdown(wait=False, cancel_futures=True)


async def _left(request: Request) -> None:
    """Ends when the client leaves; the body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
