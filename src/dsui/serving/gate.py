"""What every request passes: its token, its number, its line in the log, its place in the metrics, and its errors.

No traceback leaves the server: an error that nobody foresaw is one sentence with the number of the request, and the log
has the rest under that number.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from secrets import token_hex
from typing import Any

from dsui.serving.connection import SURPLUS
from dsui.serving.logs import write_event
from dsui.serving.refusal import CLOSE, Refusal, busy
from dsui.serving.serving_state import ServingState

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = {"/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/openapi.json"}
"""Paths that need no token: they tell nothing of images, and those who probe a server have none."""
QUIET = {"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/metrics", "/v1/models"}
"""Paths that are asked every few seconds and are not worth a line of the log."""
NUMBER = re.compile(rb"[\w.-]{1,64}")
"""What a client may call its request in X-Request-ID."""
OTHER = "other"
HARDENING = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: App, state: ServingState) -> None:
        self._app, self._state, self._metrics = app, state, state.metrics
        token = state.settings.token
        self._process, self._count = token_hex(4).encode(), count(1)
        self._token = None if token is None else token.strip().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        number = given if NUMBER.fullmatch(given) else b"%s-%d" % (self._process, next(self._count))
        answer = _Answer(send, number, self._state)
        fields: dict[str, object] = {}
        scope.setdefault("state", {})["request_fields"] = fields
        self._metrics.open_requests.inc()
        problem: Exception | None = None
        try:
            if scope["state"].get(SURPLUS) and scope["path"] not in OPEN:
                raise busy("as many open connections as it may hold", 1, CLOSE)
            self._check_token(scope["path"], headers)
            await self._app(scope, receive, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except Exception as error:  # whatever it is, the client gets a sentence and the log the rest
            problem = error
            sentence = f"the server failed to answer this; its log says more under {number.decode()}."
            await answer.refuse(Refusal(500, sentence))
        finally:
            self._metrics.open_requests.dec()
            seconds = time.perf_counter() - begin
            route = scope.get("route")
            path = getattr(route, "path", None) or OTHER
            method = scope["method"] if scope["method"] in {"GET", "POST", "HEAD", "OPTIONS"} else OTHER
            self._metrics.requests.labels(method, path, answer.status).inc()
            self._metrics.seconds.labels(path).observe(seconds)
            if answer.status >= 400:
                self._metrics.refused.labels(answer.status).inc()
            if problem is not None or scope["path"] not in QUIET:
                write_event(
                    logging.ERROR if answer.status == 500 else logging.INFO,
                    "request",
                    problem,
                    id=number.decode(),
                    method=method,
                    path=scope["path"][:200],
                    status=answer.status,
                    seconds=round(seconds, 6),
                    client=(scope.get("client") or ("",))[0],
                    **fields,
                )

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._token is None or path in OPEN:
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            raise Refusal(
                401,
                "this server wants a token; send it as the header `Authorization: Bearer TOKEN`.",
                {"WWW-Authenticate": "Bearer"},
            )


class _Answer:
    """Passes an answer on, with the headers that every answer has."""

    def __init__(self, send: Send, number: bytes, state: ServingState) -> None:
        self._send, self._number, self._state = send, number, state
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            more = [(b"x-request-id", self._number), *HARDENING]
            if self._state.draining:  # the next request is another server's
                more.append((b"connection", b"close"))
            message["headers"] = [*message.get("headers", []), *more]
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a sentence, unless the answer has begun."""
        if self.status:
            return
        body = json.dumps({"error": refusal.sentence}).encode()
        headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
