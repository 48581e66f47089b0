"""Light clients of a server: raw sockets in one event loop, whole requests made in advance.

Run as a program in a process of its own, it prints the latencies as JSON, so that it shares no lock with the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


@dataclass(frozen=True)
class Load:
    """`clients` connections send `requests` in all, each the next one as soon as the last is answered."""

    host: str
    port: int
    path: str
    content_type: str
    body: str
    """The name of a file."""
    clients: int
    requests: int


@dataclass(frozen=True)
class Measured:
    """Seconds in all, and of each request; `refused` were not answered with 200."""

    seconds: float
    latencies: list[float]
    refused: int


class _Client(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run, self._buffer, self._needed = run, b"", 0
        self._begin = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._needed and (end := self._buffer.find(HEAD_END)) >= 0:
            head = self._buffer[:end].lower()
            at = head.index(LENGTH) + len(LENGTH)
            self._needed = end + len(HEAD_END) + int(head[at:].split(b"\r\n", 1)[0])
        if self._needed and len(self._buffer) >= self._needed:
            self._run.note(time.perf_counter() - self._begin, self._buffer.startswith(b"HTTP/1.1 200"))
            self._buffer, self._needed = b"", 0
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._run.done.done():
            self._run.done.set_exception(exc or ConnectionError("the server closed a connection"))

    def _send(self) -> None:
        assert self._transport is not None
        if self._run.left > 0:
            self._run.left -= 1
            self._begin = time.perf_counter()
            self._transport.write(self._run.request)


class _Run:
    def __init__(self, load: Load, request: bytes) -> None:
        self.request, self.left, self.due = request, load.requests, load.requests
        self.latencies: list[float] = []
        self.refused = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note(self, seconds: float, answered: bool) -> None:
        self.latencies.append(seconds)
        self.refused += not answered
        self.due -= 1
        if self.due == 0 and not self.done.done():
            self.done.set_result(None)


async def send(load: Load) -> Measured:
    """All requests of a load."""
    with open(load.body, "rb") as stream:
        body = stream.read()
    head = f"POST {load.path} HTTP/1.1\r\nHost: {load.host}\r\nContent-Type: {load.content_type}\r\n"
    run = _Run(load, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    opened = [await loop.create_connection(lambda: _Client(run), load.host, load.port) for _ in range(load.clients)]
    await run.done
    seconds = time.perf_counter() - begin
    for transport, _ in opened:
        transport.abort()
    return Measured(seconds, run.latencies, run.refused)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(send(Load(**json.loads(sys.argv[1])))))))
