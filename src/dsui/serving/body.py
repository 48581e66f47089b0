"""The body of a request: read within limits of bytes and time, so that neither a flood nor a trickle holds the server.

A body that is too large is read to its end all the same, up to a multiple of the limit, and forgotten: a client that is
still sending does not hear an answer, because the connection breaks under it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from dsui.serving.refusal import CLOSE, Refusal, busy

HEARD_OUT = 4
"""Times the limit; a longer body is cut off."""


@dataclass
class BodyBudget:
    """The bytes that all bodies together may take."""

    free: int

    @contextmanager
    def open(self) -> Iterator[Held]:
        """For one body; what it holds is given back at the end."""
        held = Held(self)
        try:
            yield held
        finally:
            self.free += held.size


@dataclass
class Held:
    """What one body takes of the budget. It takes what has arrived and not what is announced, so that clients who
    announce much and send little keep nobody out."""

    budget: BodyBudget
    size: int = 0

    def add(self, size: int) -> None:
        """Take more, or raise the Refusal that says when to come back."""
        if size > self.budget.free:
            raise busy("as many bytes in memory as it may hold", 1)
        self.budget.free -= size
        self.size += size


async def read_body(request: Request, held: Held, most: int, deadline: float) -> bytes:
    """The whole body; `deadline` is a time of the event loop."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "the request's body is compressed; send it as it is, without Content-Encoding.", CLOSE)
    parts: list[bytes] = []
    size = 0
    announced = request.headers.get("content-length", "0")
    too_large = not announced.isdecimal() or int(announced) > HEARD_OUT * most
    try:
        async with asyncio.timeout_at(deadline):
            if not too_large:
                async for part in request.stream():
                    size += len(part)
                    if size <= most:
                        held.add(len(part))
                        parts.append(part)
                    elif size > HEARD_OUT * most:
                        break
    except TimeoutError as error:
        raise Refusal(408, "the request's body did not arrive in time; send it again, or send less.", CLOSE) from error
    except ClientDisconnect as error:
        raise Refusal(499, "the client left.", CLOSE) from error
    if too_large or size > most:
        raise Refusal(413, f"the request's body has more than {most:,} bytes; send fewer or smaller images.", CLOSE)
    return parts[0] if len(parts) == 1 else b"".join(parts)
