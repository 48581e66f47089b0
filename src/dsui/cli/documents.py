"""JSON for a program, on stdout."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import typer


def show(content: object) -> None:
    """One document; what is no number is null, a path its text."""
    typer.echo(json.dumps(plain(content), indent=2, default=str, allow_nan=False))


def plain(content: object) -> object:
    """With null for what is no number."""
    if isinstance(content, Mapping):
        return {str(name): plain(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
