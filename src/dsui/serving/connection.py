"""Connections that do not wait for ever, for the head of a request or for a client that does not read its answer, and
are not too many.

uvicorn itself limits only the pause between two requests. Its limit on connections turns everyone away, also probes and
those who were there before.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SURPLUS = "dsui_surplus"
"""Marks a connection beyond the limit, in the state of its requests; `dsui.serving.gate` answers them with 503."""

MOST_SURPLUS = 1000
"""Of these connections; a flood must not use up the open files of the process."""
MOST_FILES = 8192
"""Open files that a server wants to be allowed: connections, models, and some."""


def allow_files() -> None:
    """Let the process open as many files as it may; where 1,024 are allowed, connections alone would use them up."""
    if sys.platform != "win32":
        import resource

        few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(MOST_FILES, most)
        if few != resource.RLIM_INFINITY and few < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def limited_protocol(seconds: float, connections: int) -> type[asyncio.Protocol]:
    """uvicorn's protocol with a limit on each of these waits, and on the connections that are served."""
    base: Any = AutoHTTPProtocol

    class LimitedProtocol(base):  # type: ignore[misc]
        app_state: dict[str, Any]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > connections + MOST_SURPLUS:
                transport.abort()
            elif len(self.connections) > connections:
                self.app_state = {**self.app_state, SURPLUS: True}
            self._restart()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._stop()
            elif self._timer is None and (before is None or before.response_complete):
                self._restart()  # a part of a head

        def pause_writing(self) -> None:
            super().pause_writing()
            self._restart()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _restart(self) -> None:
            self._stop()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self.transport.abort()

    return LimitedProtocol
