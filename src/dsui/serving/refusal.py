"""What a client is told when a request is not answered: a status and one sentence, never more."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818 - most of them are the client's, not errors of the server
    """Answered as `{"error": sentence}` with the status."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


CLOSE = {"Connection": "close"}
"""The header of an answer after which the connection is of no use."""


def busy(what: str, seconds: int, headers: Mapping[str, str] | None = None) -> Refusal:
    """Come back in `seconds`."""
    more = {"Retry-After": str(seconds), **(headers or {})}
    return Refusal(503, f"the server has {what}; try again in {seconds} s.", more)
