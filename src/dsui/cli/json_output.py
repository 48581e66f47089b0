"""Results as JSON on stdout."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from dsui.cli.terminal import print_line


def print_json(content: object) -> None:
    """One JSON document: NaN and infinity become null, paths become text."""
    print_line(json.dumps(to_json_value(content), indent=2, default=str, allow_nan=False))


def to_json_value(content: object) -> object:
    """The content with null in place of NaN and infinity, which JSON does not have."""
    if isinstance(content, Mapping):
        return {str(name): to_json_value(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [to_json_value(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
