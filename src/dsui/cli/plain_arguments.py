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
