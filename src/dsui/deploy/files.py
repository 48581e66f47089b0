"""The image files a user names, and their pixels, decoded by threads ahead of use."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from dsui.data.decode import extensions

Item = TypeVar("Item")
Made = TypeVar("Made")


def image_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files among `paths`, whatever their names, and the image files in and below the folders, sorted by name.

    In folders hidden files and files whose ending is no image's are passed over. Links are followed, but no folder is
    entered twice. What does not exist or cannot be listed is named as it is: reading it tells why.
    """
    known, seen = extensions(), set[str]()

    def below(folder: Path) -> Iterator[Path]:
        real = os.path.realpath(folder)
        if real in seen:
            return
        seen.add(real)
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            yield folder
            return
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if os.path.isdir(path):  # unlike Path.is_dir no error where access is denied
                yield from below(path)
            elif path.suffix.lower() in known:
                yield path

    for path in paths:
        yield from below(path) if os.path.isdir(path) else [path]


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
