"""A connection to Ray: to the cluster that RAY_ADDRESS names or that runs on this machine, else to a new one here.

A cluster that is started here ends with the connection. It has no dashboard and reports no usage to anybody.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dsui.errors import DsuiError

ADDRESS, USAGE = "RAY_ADDRESS", "RAY_USAGE_STATS_ENABLED"
SKIPPED = "RAY_DEDUP_LOGS_SKIP_REGEX"
"""What this matches of the messages of a cluster is not printed. Ray reads it when it is imported, and would print lost
workers to standard output, even among JSON."""
QUIET = {"configure_logging": True, "logging_level": logging.ERROR, "log_to_driver": False}
"""Ray prints nothing of its own; what failed is told by who asked for it."""


@contextmanager
def connected_ray(note: Callable[[str], None]) -> Iterator[Any]:
    """The package `ray`, connected until the end of the context. `note` hears where, if that is a new cluster."""
    os.environ.setdefault(SKIPPED, ".")
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise DsuiError("--engine ray needs the package ray; pip install ray, or choose another engine.") from error
    if ray.is_initialized():  # by the program that calls this
        yield ray
        return
    _connect(ray, note)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, note: Callable[[str], None]) -> None:
    if address := os.environ.get(ADDRESS):
        try:
            _check_answers(address)
            ray.init(address=address, **QUIET)
        except (OSError, RuntimeError, ValueError) as error:
            (why, *_) = str(error).splitlines() or [type(error).__name__]
            raise DsuiError(
                f"no Ray cluster was reached at {address} ({why}); correct {ADDRESS}, or unset it."
            ) from error
        return
    try:
        ray.init(address="auto", **QUIET)
    except ConnectionError:
        os.environ.setdefault(USAGE, "0")
        ray.init(address="local", include_dashboard=False, **QUIET)
        count = int(ray.cluster_resources()["CPU"])
        note(f"No Ray cluster was found, so one of {count} processors was started on this machine.")


def _check_answers(address: str) -> None:
    """Raise an OSError where nobody listens at HOST:PORT. Ray itself would try for minutes and then end the process."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()
