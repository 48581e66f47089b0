"""Images of many requests in one forward pass.

A single worker thread runs the model, and ONNX Runtime releases Python's lock while it computes. Images that arrive
meanwhile are the next batch, so batches grow with the load by themselves. A batch waits for nothing but images that are
being decoded, and for these a few milliseconds at most: a single client is answered at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsui.serving.refusal import busy

Result = TypeVar("Result")
SHORTEST = 1e-6
"""Seconds of a batch that a coarse clock may call none."""
LONGEST_PAUSE = 60
"""Seconds that a client is asked to wait, at most."""


class Part(NamedTuple, Generic[Result]):
    """The rows `start` to `stop` of what a batch gave."""

    whole: Result
    start: int
    stop: int


class _Waiting(NamedTuple, Generic[Result]):
    inputs: NDArray[Any]
    result: asyncio.Future[Part[Result]]


@dataclass
class Ticket:
    """Of a request that was let in: how many of its images do not wait for a batch yet."""

    coming: int


class Batcher(Generic[Result]):
    """`predict` takes [N, ...]; `after` is called in the event loop with what each batch gave, and its size."""

    def __init__(
        self,
        predict: Callable[[NDArray[Any]], Result],
        batch: int,
        wait: float,
        queue: int,
        after: Callable[[Result, int, float], None],
    ) -> None:
        self._predict, self._batch, self._wait, self._queue, self._after = predict, batch, wait, queue, after
        self._waiting: deque[_Waiting[Result]] = deque()
        self._arrived = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="dsui-model")
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._rate = 0.0
        """Images a second, lately."""
        self.admitted = 0
        """Images that were let in and are not answered yet."""
        self.queued = 0
        """Those among them that wait for their batch."""
        self.coming = 0
        """Those that are being decoded."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="dsui-batches")

    @contextmanager
    def admitting(self, images: int) -> Iterator[Ticket]:
        """Let so many images in, or raise the Refusal that says when to come back."""
        if self.admitted + images > self._queue:
            raise busy("as many images waiting as it may hold", self.pause())
        ticket = Ticket(images)
        self.admitted += images
        self.coming += images
        try:
            yield ticket
        finally:
            self.admitted -= images
            self.coming -= ticket.coming
            self._arrived.set()  # a batch that waits for these images need not

    def pause(self) -> int:
        """Whole seconds until the images that wait now are answered, by the speed of late."""
        return min(LONGEST_PAUSE, 1 + int(self.admitted / self._rate)) if self._rate else 1

    async def submit(self, inputs: NDArray[Any], ticket: Ticket) -> Part[Result]:
        """What the model gives for the rows of `inputs`, of which there is at least one."""
        ticket.coming -= len(inputs)
        self.coming -= len(inputs)
        result: asyncio.Future[Part[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(inputs, result))
        self.queued += len(inputs)
        self._arrived.set()
        return await result

    async def close(self) -> None:
        """Answer what was let in, and end."""
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._worker.shutdown(wait=False)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                if self._closing and not self.admitted:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            await self._wait_for_those_in_sight(loop)
            if chosen := self._take():
                await self._answer(chosen)

    async def _answer(self, chosen: list[_Waiting[Result]]) -> None:
        """Predict a batch. Whatever goes wrong reaches those who wait for it, and the next batch goes on."""
        inputs = chosen[0].inputs if len(chosen) == 1 else np.concatenate([each.inputs for each in chosen])
        begin = time.perf_counter()
        try:
            whole = await asyncio.get_running_loop().run_in_executor(self._worker, self._predict, inputs)
            seconds = time.perf_counter() - begin
            self._after(whole, len(inputs), seconds)
        except Exception as error:
            for each in chosen:
                if not each.result.done():
                    each.result.set_exception(error)
            return
        rate = len(inputs) / max(seconds, SHORTEST)
        self._rate = 0.8 * self._rate + 0.2 * rate if self._rate else rate
        start = 0
        for each in chosen:
            stop = start + len(each.inputs)
            if not each.result.done():
                each.result.set_result(Part(whole, start, stop))
            start = stop

    async def _wait_for_those_in_sight(self, loop: asyncio.AbstractEventLoop) -> None:
        until = loop.time() + self._wait
        while self.coming and self.queued < self._batch and (left := until - loop.time()) > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take(self) -> list[_Waiting[Result]]:
        """The first that wait, of one shape, up to a batch; those that nobody waits for any more are dropped."""
        chosen: list[_Waiting[Result]] = []
        images = 0
        while self._waiting:
            first = self._waiting[0]
            fits = not chosen or (
                images + len(first.inputs) <= self._batch and first.inputs.shape[1:] == chosen[0].inputs.shape[1:]
            )
            if not fits and not first.result.done():
                break
            self._waiting.popleft()
            self.queued -= len(first.inputs)
            if not first.result.done():
                chosen.append(first)
                images += len(first.inputs)
        return chosen
