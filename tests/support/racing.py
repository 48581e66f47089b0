"""Processes that race, and how often they do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkProcess
from typing import Any

import pytest

FORK = multiprocessing.get_context("fork")
"""A forked child has torch at once; it uses no thread of its parent."""
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
LONGEST = 300.0
"""Seconds after which a race has hung."""


def rounds(short: int, long: int) -> pytest.MarkDecorator:
    """The argument `times` of a race: in every test run, and with `pytest -m soak`."""
    return pytest.mark.parametrize("times", [short, pytest.param(long, marks=pytest.mark.soak)])


def started(work: Callable[[int], None], number: int) -> ForkProcess:
    process = FORK.Process(target=work, args=(number,))
    process.start()
    return process


def at_once(work: Callable[[int], None] | Sequence[Callable[[int], None]], count: int) -> list[int | None]:
    """The exit statuses of `count` processes that begin together, each with its number."""
    barrier: Any = FORK.Barrier(count)
    all_work = [work] * count if callable(work) else work

    def begin(number: int) -> None:
        barrier.wait(LONGEST)
        all_work[number](number)

    processes = [started(begin, number) for number in range(count)]
    for process in processes:
        process.join(LONGEST)
        process.kill()
        process.join()
    return [process.exitcode for process in processes]
