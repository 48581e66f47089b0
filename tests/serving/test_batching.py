"""Batches: what waits goes together, nobody waits for nothing, and what is let in is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from dsui.serving.batching import Batcher, Part
from dsui.serving.refusal import Refusal

Answer = TypeVar("Answer")
Ints = NDArray[np.int64]


def run(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(asyncio.wait_for(work, 60))


class Doubling:
    """A model that doubles, and stops at a gate until it is opened."""

    def __init__(self, open_gate: bool = True) -> None:
        self.gate, self.sizes = threading.Event(), list[int]()
        if open_gate:
            self.gate.set()

    def __call__(self, inputs: Ints) -> Ints:
        self.gate.wait(60)
        self.sizes.append(len(inputs))
        if (inputs < 0).any():
            raise ArithmeticError("negative")
        return 2 * inputs


def batcher(model: Doubling, batch: int = 4, wait: float = 10.0, queue: int = 100) -> Batcher[Ints]:
    """It waits so long that a test which waits without need runs into its limit of time."""
    made: Batcher[Ints] = Batcher(model, batch, wait, queue, lambda *_: None)
    made.start()
    return made


async def ask(queue: Batcher[Ints], *values: int) -> list[int]:
    with queue.admitting(len(values)) as ticket:
        part: Part[Ints] = await queue.submit(np.array(values), ticket)
        return [int(each) for each in part.whole[part.start : part.stop]]


def test_a_single_image_waits_for_nobody() -> None:
    async def work() -> list[int]:
        queue = batcher(Doubling(), batch=64, wait=1000.0)
        found = await ask(queue, 3)
        await queue.close()
        return found

    assert run(work()) == [6]


def test_what_arrives_during_a_batch_is_the_next_and_everyone_gets_their_own() -> None:
    model = Doubling(open_gate=False)

    async def work() -> list[list[int]]:
        queue = batcher(model)
        asking = [asyncio.create_task(ask(queue, number)) for number in range(10)]
        await asyncio.sleep(0.05)
        model.gate.set()
        found = await asyncio.gather(*asking)
        await queue.close()
        return found

    assert run(work()) == [[2 * number] for number in range(10)]
    assert sum(model.sizes) == 10
    assert max(model.sizes) == 4
    assert len(model.sizes) <= 4, "one that was alone, and then full batches"


def test_a_batch_waits_for_images_that_are_being_decoded_and_no_longer_than_allowed() -> None:
    model = Doubling()

    async def work() -> float:
        queue = batcher(model, wait=0.2)
        loop = asyncio.get_running_loop()
        with queue.admitting(2) as ticket:  # the second is never decoded
            begin = loop.time()
            await queue.submit(np.array([1]), ticket)
            waited = loop.time() - begin
            first = asyncio.create_task(ask(queue, 5))
            await asyncio.sleep(0)
            await queue.submit(np.array([2]), ticket)
            await first
        await queue.close()
        return waited

    assert run(work()) >= 0.19  # the clock of the loop may be a little coarse
    assert model.sizes == [1, 2], "the second batch waited until its other image was there"


def test_an_error_reaches_those_of_its_batch_and_nobody_else() -> None:
    async def work() -> tuple[list[object], list[int]]:
        queue = batcher(Doubling(), batch=1)
        found = await asyncio.gather(ask(queue, -1), ask(queue, 1), return_exceptions=True)
        later = await ask(queue, 2)
        await queue.close()
        return list(found), later

    (error, answer), later = run(work())
    assert isinstance(error, ArithmeticError)
    assert (answer, later) == ([2], [4])


def test_images_that_nobody_waits_for_any_more_are_not_predicted() -> None:
    model = Doubling(open_gate=False)

    async def work() -> None:
        queue = batcher(model, batch=1)
        asking = [asyncio.create_task(ask(queue, number)) for number in range(4)]
        await asyncio.sleep(0.05)
        for each in asking[1:3]:
            each.cancel()
        await asyncio.sleep(0)
        assert queue.admitted == 2
        model.gate.set()
        assert await asking[3] == [6]
        await queue.close()
        assert (queue.admitted, queue.queued, queue.coming) == (0, 0, 0)

    run(work())
    assert model.sizes == [1, 1]


def test_a_full_queue_lets_nobody_in_and_says_when_to_come_back() -> None:
    model = Doubling(open_gate=False)

    async def work() -> Refusal:
        queue = batcher(model, queue=3)
        first = asyncio.create_task(ask(queue, 1, 2))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await ask(queue, 1, 2)
        second = asyncio.create_task(ask(queue, 7))
        await asyncio.sleep(0)
        model.gate.set()
        assert await first == [2, 4]
        assert await second == [14]
        await queue.close()
        return refused.value

    refusal = run(work())
    assert refusal.status == 503
    assert int(refusal.headers["Retry-After"]) >= 1


def test_what_was_let_in_is_answered_before_the_end() -> None:
    model = Doubling(open_gate=False)

    async def work() -> list[list[int]]:
        queue = batcher(model, batch=2)
        asking = [asyncio.create_task(ask(queue, number)) for number in range(7)]
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        model.gate.set()
        await closing
        return await asyncio.gather(*asking)

    assert run(work()) == [[2 * number] for number in range(7)]


def test_inputs_of_different_shapes_never_share_a_batch() -> None:
    seen: list[tuple[int, ...]] = []

    def model(inputs: NDArray[Any]) -> NDArray[Any]:
        seen.append(inputs.shape)
        return inputs

    async def work() -> None:
        queue: Batcher[NDArray[Any]] = Batcher(model, 8, 0.0, 100, lambda *_: None)

        async def send(side: int) -> None:
            with queue.admitting(1) as ticket:
                await queue.submit(np.zeros((1, side)), ticket)

        asking = [asyncio.create_task(send(side)) for side in (2, 2, 3, 2)]
        await asyncio.sleep(0)
        queue.start()
        await asyncio.gather(*asking)
        await queue.close()

    run(work())
    assert seen == [(2, 2), (1, 3), (1, 2)]


def test_an_error_while_counting_stops_nothing() -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def work() -> None:
        queue: Batcher[Ints] = Batcher(Doubling(), 4, 0.0, 10, fail)
        queue.start()
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await ask(queue, 1)
        await queue.close()

    run(work())
