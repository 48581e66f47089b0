"""Libraries that speak to their own developers, in logs and warnings, kept from a user's terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_remarks() -> Iterator[None]:
    """A context in which nothing below an error is logged and no warning is shown; errors are raised as ever."""
    former = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(former)
