"""A server of `dsui serve` in a process of its own, as its users start it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

PATIENCE = 60.0
"""Seconds until what does not happen is a failure; a busy machine is none."""


class Server:
    """Its address, its process, and what it logs."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self._log = process, log
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        self.address: str = json.loads(line)["address"]
        url = urlsplit(self.address)
        assert url.hostname is not None
        assert url.port is not None
        self.host, self.port = url.hostname, url.port

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of the log so far that are about such an event."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if line["event"] == name]

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)


@contextmanager
def running_server(folder: Path, *words: object, token: str | None = None) -> Iterator[Server]:
    """`dsui serve WORDS` on a free port; its log is in `folder`."""
    log = folder / "server.log"
    environment = {name: value for name, value in os.environ.items() if name != "DSUI_TOKEN"}
    if token is not None:
        environment["DSUI_TOKEN"] = token
    command = [sys.executable, "-m", "dsui", "serve", *map(str, words), "--port", "0", "--json"]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment) as process,
    ):
        try:
            yield Server(process, log)
        finally:
            process.kill()


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    """What `holds` gives, once it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)
    return found


def png(colour: tuple[int, int, int] = (250, 10, 10), size: tuple[int, int] = (8, 8)) -> bytes:
    """The bytes of an image file of one colour."""
    stream = BytesIO()
    Image.new("RGB", size, colour).save(stream, "PNG")
    return stream.getvalue()
