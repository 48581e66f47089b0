"""The log of the server: a JSON object to a line, for programs to read.

Text from outside stands inside JSON strings, so it can neither begin a line nor command a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from dsui.excerpt import shorten

LONGEST = 4000
"""Characters of a traceback."""
NAME = "dsui.serving"


class JsonFormatter(logging.Formatter):
    """The fields given as `extra={"fields": {...}}`; the message is the event."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.name != NAME:
            line |= {"event": "library", "library": record.name, "message": shorten(record.getMessage())}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))[-LONGEST:]
        return json.dumps(line, default=str)


def open_log(quiet: bool) -> None:
    """Write this server's log, and the warnings of all libraries, to stderr; a quiet one has no line for each
    request."""
    stream = sys.stderr  # None where the shell closed it
    handler: logging.Handler = logging.NullHandler() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(NAME).setLevel(logging.WARNING if quiet else logging.INFO)


def write_event(level: int, event: str, error: BaseException | None = None, **fields: object) -> None:
    """One line."""
    logger = logging.getLogger(NAME)
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": fields}, exc_info=error)
