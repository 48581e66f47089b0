"""The callback with which long work reports its progress: the command line draws a bar, tests show nothing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A function that is called again and again while work goes on."""

    def __call__(self, what: str, done: int, total: int | None, /) -> None:
        """`done` of `total` bytes, images or runs of `what`; the total is None while it is unknown."""


def silent(what: str, done: int, total: int | None, /) -> None:
    """Show nothing."""
