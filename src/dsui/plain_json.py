"""JSON from outside: its value, or a ValueError with one clause, also where it nests deeper than Python recurses."""

from __future__ import annotations

import json


def load_json(text: str | bytes) -> object:
    """The value that JSON text describes."""
    try:
        value: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets nest too deep") from error
    except ValueError as error:
        raise ValueError("it is not whole JSON") from error
    return value
