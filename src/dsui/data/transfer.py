"""One file over HTTP into a `.part` file, continued from where an earlier transfer broke off."""

from __future__ import annotations

import re
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from dsui.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse
    from pathlib import Path

    from dsui.data.progress import Progress

CHUNK = 1 << 16
ATTEMPTS = 8  # each must have got further than the one before, and none been met with silence


class TransferError(Exception):
    """Why an address did not deliver its file."""


def transfer(address: str, part: Path, what: str, progress: Progress, timeout: float) -> None:
    """All bytes at `address` into `part`; `timeout` is the longest silence in seconds. The part stays on failure."""
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            _request(address, part, what, progress, timeout)
        except (OSError, HTTPException, TransferError) as error:
            if isinstance(error, TimeoutError) or _size(part) <= before:
                raise TransferError(_reason(error, timeout)) from error
        else:
            return
    raise TransferError(f"it broke off {ATTEMPTS} times")


def _request(address: str, part: Path, what: str, progress: Progress, timeout: float) -> None:
    held = _size(part)
    headers = {"User-Agent": "dsui"} | ({"Range": f"bytes={held}-"} if held else {})
    try:
        response = urlopen(Request(address, headers=headers), timeout=timeout)  # noqa: S310 - http(s) constants
    except HTTPError as error:
        with error:
            if error.code != 416 or not held:
                raise
            if error.headers.get("Content-Range") == f"bytes */{held}":
                return  # nothing is left to send: the part is whole
        part.unlink()  # longer than the file it should be a part of
        _request(address, part, what, progress, timeout)
        return
    with response:
        done, total = _extent(response, held)
        with _disk(part):
            stream = part.open("ab" if done else "wb")
        with stream:
            progress(what, done, total)
            while chunk := response.read(CHUNK):
                with _disk(part):
                    stream.write(chunk)
                    stream.flush()
                done += len(chunk)
                progress(what, done, total)
    if total is not None and done != total:
        raise TransferError(f"it broke off after {done:,} of {total:,} bytes")


def _extent(response: HTTPResponse, held: int) -> tuple[int, int | None]:
    """The position of the first byte to come and the length of the whole file."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not span or int(span[1]) != held:
            raise TransferError("it sent another range than the one asked for")
        return held, int(span[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None  # a server that does not know ranges begins anew


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """A disk's failure is no reason to try the next mirror."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); make room, or choose another --root.") from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, HTTPError):
        return f"HTTP {error.code} {error.reason}"
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no byte for {timeout:g} s"
    return str(cause) or type(cause).__name__
