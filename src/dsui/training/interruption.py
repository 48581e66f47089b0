"""Ctrl-C, SIGTERM, a closed terminal and a deadline as a request to stop after the present step, so that a run can be
saved."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # not in Windows


class Interruption:
    """Within its context the first signal sets `requested` and calls `answer`; a second one ends the process as usual.
    The moment `until`, as `time.time()` counts, sets `requested` too.

    Only the main thread can listen in Python, so a run in another thread gets no signal.
    """

    def __init__(self, answer: Callable[[], None] = lambda: None, until: float = math.inf) -> None:
        self.answer, self.until = answer, until
        self.signalled = False
        self._former: dict[signal.Signals, object] = {}

    @property
    def requested(self) -> bool:
        return self.signalled or time.time() >= self.until

    def __enter__(self) -> Interruption:
        for number in SIGNALS if threading.current_thread() is threading.main_thread() else ():
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored in a job that a script runs in the background
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.signalled = True
        self._restore()
        with suppress(OSError):  # a closed terminal, whose signal this may be, cannot be written to
            self.answer()

    def _restore(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._former = {}
