"""What a client is told when a request is not answered: a status and one sentence, never more."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818 - most of them are the client's, not errors of the server
    """Answered as `{"error": sentence}` with the status."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def busy(what: str, seconds: int) -> Refusal:
    """Come back in `seconds`."""
    return Refusal(503, f"the server has {what}; try again in {seconds} s.", {"Retry-After": str(seconds)})
