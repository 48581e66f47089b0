"""Progress bars and notes on stderr."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dsui.cli.progress import ProgressBars, format_duration


@pytest.mark.parametrize(
    ("terminal", "quiet", "live"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_bars_are_drawn_only_on_a_terminal_and_without_quiet(terminal: bool, quiet: bool, live: bool) -> None:
    stream = io.StringIO()
    with ProgressBars(Console(file=stream, force_terminal=terminal, quiet=quiet)) as bars:
        bars.update("photos [test]", 1, 2)
        bars.display.refresh()
    assert bars.live == live
    assert ("photos [test]" in stream.getvalue()) == live


@pytest.mark.parametrize(
    ("seconds", "text"), [(89, "about 89 s"), (90, "about 2 min"), (5399, "about 90 min"), (5400, "about 1.5 h")]
)
def test_a_duration_is_in_seconds_minutes_or_hours(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
