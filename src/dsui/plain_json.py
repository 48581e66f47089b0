"""JSON from outside: its value, or a ValueError with one clause, also where it nests deeper than Python recurses."""

from __future__ import annotations

import json
import re

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def load_json(text: str | bytes) -> object:
    """The value that JSON text describes."""
    try:
        value: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets nest too deep") from error
    except ValueError as error:
        raise ValueError("it is not whole JSON") from error
    if SURROGATE.search(text if isinstance(text, bytes) else text.encode(errors="replace")):
        try:
            json.dumps(value, ensure_ascii=False).encode(errors="surrogateescape")  # bytes of file names are no text
        except UnicodeEncodeError as error:
            raise ValueError("a text in it holds half a character") from error
    return value
