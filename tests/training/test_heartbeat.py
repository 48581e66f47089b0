"""A process that stands still is named, then the job is ended; one that works for long is not."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from torch._C._distributed_c10d import HashStore

from dsui.training.distributed import World
from dsui.training.heartbeat import ENDED_AFTER, NAMED_AFTER, Counters, Heartbeat, Silence

TURN = 0.01


class Said:
    """What a process was told."""

    def __init__(self) -> None:
        self.named: list[str] = []
        self.ended: list[str] = []


def heartbeat(rank: int, size: int, store: HashStore, said: Said) -> Heartbeat:
    return Heartbeat(World(rank, size), lambda: store, said.named.append, said.ended.append, TURN)


def wait_for(sentences: list[str]) -> list[str]:
    deadline = time.monotonic() + 60
    while not sentences and time.monotonic() < deadline:
        time.sleep(TURN)
    return sentences


def test_silence_is_counted_in_turns_and_ends_with_a_beat() -> None:
    silence = Silence([1, 2])
    for number in range(5):
        silence.look({1: number})
    assert silence.turns == {1: 0, 2: 5}
    assert silence.since(5) == [2]
    silence.look({1: 4, 2: 1})
    assert silence.turns == {1: 1, 2: 0}


def test_processes_that_live_are_not_named() -> None:
    store, all_said = HashStore(), [Said() for _ in range(3)]
    with ExitStack() as living:
        for rank, said in enumerate(all_said):
            living.enter_context(heartbeat(rank, 3, store, said))
        time.sleep(3 * NAMED_AFTER * TURN)
    assert [said.named + said.ended for said in all_said] == [[], [], []]


@pytest.mark.parametrize(("stopped", "watching"), [(1, 0), (0, 1)])
def test_a_process_that_stands_still_is_named_and_then_the_job_is_ended(stopped: int, watching: int) -> None:
    store, said = HashStore(), Said()
    with heartbeat(watching, 2, store, said):
        with heartbeat(stopped, 2, store, Said()):
            time.sleep(NAMED_AFTER * TURN)
        assert wait_for(said.ended) == [
            f"process {stopped} of this job has not answered for {ENDED_AFTER * TURN:.0f} s"
        ]
    assert len(said.named) == 1
    assert said.named[0].startswith(f"process {stopped} of this job has not answered for")


def test_a_store_that_does_not_answer_is_the_silence_of_the_process_that_keeps_it() -> None:
    said = Said()

    class Stopped:
        def add(self, _key: str, _amount: int) -> int:
            time.sleep(60)
            return 0

    stopped: Counters = Stopped()
    with Heartbeat(World(1, 2), lambda: stopped, said.named.append, said.ended.append, TURN):
        assert wait_for(said.ended)[0].startswith("process 0 of this job has not answered")


def test_a_store_that_is_gone_is_left_to_the_backend() -> None:
    said = Said()

    class Gone:
        def add(self, _key: str, _amount: int) -> int:
            raise RuntimeError("Connection reset by peer")

    gone: Counters = Gone()
    with Heartbeat(World(0, 2), lambda: gone, said.named.append, said.ended.append, TURN):
        time.sleep(3 * NAMED_AFTER * TURN)
    assert said.named + said.ended == []


def test_a_process_alone_has_nothing_to_watch() -> None:
    def absent() -> Counters:
        raise AssertionError("nothing is connected")

    with Heartbeat(World(), absent, print, print) as alone:
        assert not any(thread.is_alive() for thread in alone._threads)
