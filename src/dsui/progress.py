"""How long work tells of itself to whoever shows it: a bar on the command line, nothing in a test."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def __call__(self, what: str, done: int, total: int | None) -> None:
        """`done` of `total` bytes or images of `what`; the total is None while nobody knows it."""


def silent(what: str, done: int, total: int | None) -> None:
    """Show nothing."""
