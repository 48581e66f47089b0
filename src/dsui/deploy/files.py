"""Work done by threads ahead of use, as decoding files is."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(items: Iterable[Item], make: Callable[[Item], Made], window: int) -> Iterator[Made]:
    """`make` of every item, in order, by threads; at most `window` results wait to be used."""
    source = iter(items)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        waiting: deque[Future[Made]] = deque(pool.submit(make, item) for item in islice(source, window))
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(source, 1))
            yield made
    finally:
        pool.shutdown(cancel_futures=True)
