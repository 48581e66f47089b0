"""The process that serves: it starts, reloads on SIGHUP, and answers what it took before it ends."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import select
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from dsui.errors import DsuiError
from dsui.serving.app import create_app
from dsui.serving.connection import allow_files, limited_protocol
from dsui.serving.logs import write_event
from dsui.serving.serving_state import ServingState
from dsui.serving.settings import ServerSettings

BACKLOG = 2048
"""Connections that the system accepts before the server does."""
LAST_ARRIVALS = 0.2
"""Seconds in which a stopping server still takes connections that the system has accepted for it."""
LONGEST_FLOOD = 2.0
"""Seconds in which it then waits for a moment when none is left, because closing resets those that are."""
SO_ATTACH_FILTER, BPF_RETURN = 26, 0x06
"""Of Linux: the option, and the instruction that returns how many bytes of a packet to keep."""
QUIET_TURNS = 4
"""Turns of the event loop without a new connection; asyncio takes three to make one its own."""


def serve(
    models: Mapping[str, Path],
    settings: ServerSettings,
    host: str,
    port: int,
    announce: Callable[[str, ServingState], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. `announce` is told the address, once it is open."""
    warnings.filterwarnings("ignore", module="PIL")  # about odd files, and about large ones, which have a limit here
    allow_files()
    with listen(host, port) as listener:
        app = create_app(models, settings)
        config = uvicorn.Config(
            app,
            http=limited_protocol(settings.header_seconds, settings.connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(settings.seconds) + 5,
            proxy_headers=False,
            backlog=BACKLOG,
        )
        state: ServingState = app.state.serving
        server = _Server(config, state, listener, lambda: announce(_address(listener), state))
        server.run(sockets=[listener])
        write_event(logging.INFO, "stopped")


def listen(host: str, port: int) -> socket.socket:
    """An open listener. It names its protocol: asyncio sends small answers at once (TCP_NODELAY) only where a socket is
    known to be TCP, and an answer in two parts would otherwise wait 40 ms for the client's acknowledgement."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> DsuiError:
    return DsuiError(f"{host}:{port} cannot be listened on ({error.strerror}); choose another --port or --host.")


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_new(listener: socket.socket) -> None:
    """Let the system accept no more connections, and keep those that it has accepted, which closing would reset.

    On Linux a filter drops every packet that asks for one, so that a client tries again and finds nobody. Elsewhere the
    queue becomes as short as it can be, and one or two may still be lost in a flood of new connections.
    """
    if sys.platform != "linux":
        listener.listen(0)
        return
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 0))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(drop_all)))


def _is_called(listener: socket.socket) -> bool:
    """Whether the system has accepted a connection that is not taken yet."""
    return bool(select.select([listener], [], [], 0)[0])


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, state: ServingState, listener: socket.socket, started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._state, self._listener, self._started = state, listener, started
        self._reloads: set[asyncio.Task[None]] = set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Obey SIGTERM and Ctrl-C. uvicorn raises them again at the end, and a server that stopped well would then end
        with an error."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell balancers, go on for a while, take what the system has accepted, and then close and finish."""
        self._state.draining = True
        write_event(logging.INFO, "stopping")
        await asyncio.sleep(self._state.settings.drain)
        refuse_new(self._listener)
        await asyncio.sleep(LAST_ARRIVALS)
        until, quiet = time.monotonic() + LONGEST_FLOOD, 0
        while (quiet := 0 if _is_called(self._listener) else quiet + 1) < QUIET_TURNS and time.monotonic() < until:
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    def _reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._state.reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)


def describe_models(state: ServingState) -> list[dict[str, Any]]:
    """For the announcement of a server: the names and versions of its models."""
    return [
        {"name": name, "version": slot.current.version, "source": str(slot.source)}
        for name, slot in state.slots.items()
    ]
