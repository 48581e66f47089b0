"""Connections that do not wait for ever: for the head of a request, or for a client that does not read its answer.

uvicorn itself limits only the pause between two requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def timed_protocol(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol with a limit on each of these waits."""
    base: Any = AutoHTTPProtocol

    class TimedProtocol(base):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
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

    return TimedProtocol
