"""The processes of one job show each other that they live, so that a stopped one is not waited for in silence.

A process that was stopped (SIGSTOP, a machine that hangs) keeps its connections, so the others wait for it as long as
their backend does, half an hour with gloo. Here a thread of each process counts up a number in the store of the job.
The leader looks at the numbers of all others, and these look at the leader's. A process whose number stands still is
named after a while, and later the job is ended: torchrun then restarts it, or ends all its processes.

The number comes from a thread of its own, so a process that computes, reads or saves for long still counts. Silence is
counted in turns of the watching thread: a job that is suspended as a whole, and then continued, has missed nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol

from dsui.training.distributed import World

TURN = 1.0
"""Seconds between two looks."""
NAMED_AFTER = 15
"""Turns of silence after which a process is named."""
ENDED_AFTER = 60
"""Turns of silence after which the job is ended."""


class Counters(Protocol):
    """The part of a store of torch.distributed that is used here."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number, 0 where there is none, and return it."""
        ...


class Silence:
    """How many turns each process has been silent."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._numbers: dict[int, int | None] = dict.fromkeys(ranks)
        self.turns = dict.fromkeys(self._numbers, 0)

    def look(self, numbers: dict[int, int]) -> None:
        """Take note of the present number of each process."""
        for rank, former in self._numbers.items():
            self.turns[rank] = self.turns[rank] + 1 if numbers.get(rank) == former else 0
            self._numbers[rank] = numbers.get(rank)

    def since(self, turns: int) -> list[int]:
        """The processes that have been silent for exactly so many turns."""
        return [rank for rank, silent in self.turns.items() if silent == turns]


class Heartbeat:
    """Beats and watches within its context; a world of one process has nothing to watch.

    `named` is called with a sentence about a silent process, `ended` with another one when the job should end.
    """

    def __init__(
        self,
        world: World,
        counters: Callable[[], Counters],
        named: Callable[[str], None],
        ended: Callable[[str], None],
        turn: float = TURN,
    ) -> None:
        self.world, self.counters, self.named, self.ended, self.turn = world, counters, named, ended, turn
        watched = [rank for rank in range(world.size) if rank > 0] if world.leader else [0]
        self._silence, self._numbers = Silence(watched), dict[int, int]()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._beat, self._watch)]

    def __enter__(self) -> Heartbeat:
        for thread in self._threads if self.world.size > 1 else ():
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads if self.world.size > 1 else ():
            thread.join(2 * self.turn)  # not longer: a store whose process is stopped does not answer

    def _beat(self) -> None:
        """Count up the own number and read those of the others, until the store is gone."""
        try:
            counters = self.counters()
            while not self._over.wait(self.turn):
                counters.add(_key(self.world.rank), 1)
                for rank in self._silence.turns:
                    self._numbers[rank] = counters.add(_key(rank), 0)
        except RuntimeError:  # the process that keeps the store has ended, which the next collective operation reports
            self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self.turn):
            self._silence.look(dict(self._numbers))
            if silent := self._silence.since(NAMED_AFTER):
                left = (ENDED_AFTER - NAMED_AFTER) * self.turn
                self.named(
                    f"{_named(silent)} not answered for {NAMED_AFTER * self.turn:.0f} s; the job ends in {left:.0f} s "
                    "if that goes on."
                )
            if silent := self._silence.since(ENDED_AFTER):
                self._over.set()
                self.ended(f"{_named(silent)} not answered for {ENDED_AFTER * self.turn:.0f} s")


def _key(rank: int) -> str:
    return f"heartbeat-{rank}"


def _named(ranks: list[int]) -> str:
    some = ", ".join(map(str, ranks))
    return f"process {some} of this job has" if len(ranks) == 1 else f"processes {some} of this job have"
