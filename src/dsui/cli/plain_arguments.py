"""Arguments and options that also the commands of dsui-runtime have: they need no data sets, methods or scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsui.cli.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print no progress, notes or summaries; errors are still printed.")
]


def parse_path(text: str) -> Path:
    """A path; an empty text, as an unset shell variable gives, is an error, since it would mean the current folder."""
    if not text:
        raise UsageError("a path is empty; write . for the current folder.")
    return Path(text)


def check_share(value: float | None) -> float | None:
    """Callback of an option for a share of the images in [0, 1)."""
    if value is not None and not 0 <= value < 1:
        advice = f"write {value / 100:g} for {value:g} %" if 1 < value <= 100 else "write one as 0.05 or 0.95"
        raise typer.BadParameter(f"{value:g} is not a share of the images below 1; {advice}.")
    return value


def check_positive_share(value: float | None) -> float | None:
    """Callback of an option for a share of the images in (0, 1)."""
    if value == 0:
        raise typer.BadParameter("0 is not a share of the images between 0 and 1; write one as 0.05 or 0.95.")
    return check_share(value)
