"""How many pixels are decoded at once, so that memory does not grow with the number of processors.

A decoded pixel takes 4 to 9 bytes for a moment, in a WebP 20, whatever the size of the file is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PixelBudget:
    """`most` pixels together, which is also the largest image; a thread that wants more waits for others."""

    def __init__(self, most: int) -> None:
        self.most = self._free = most
        self._freed = threading.Condition()

    @contextmanager
    def taking(self, pixels: int) -> Iterator[None]:
        """For the time that an image of so many pixels, at most `most`, is decoded."""
        with self._freed:
            self._freed.wait_for(lambda: pixels <= self._free)
            self._free -= pixels
        try:
            yield
        finally:
            with self._freed:
                self._free += pixels
                self._freed.notify_all()
