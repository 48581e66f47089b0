"""Fetch a published data set: mirrors in turn, and nothing half-written that could be taken as whole.

Bytes gather in NAME.HOST.part, one for each host, since only one host's bytes surely belong together. A complete part
whose first bytes and, where its publisher states one, md5 are right is renamed to NAME. Where no checksum is published,
`check` of the data is the proof.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from dsui.data.info import DatasetInfo, RemoteFile
from dsui.errors import DataError
from dsui.progress import Progress


def unpack(archive: Path, folder: Path) -> None:
    """Make `folder` from the folder of the same name in `archive`.

    The files go to a scratch folder beside it first, so that an interruption or a full disk leaves no half of it.
    """
    try:
        with TemporaryDirectory(prefix=".unpacking-", dir=folder.parent, ignore_cleanup_errors=True) as scratch:
            if archive.suffix == ".zip":
                _unzip(archive, scratch)
            else:
                with tarfile.open(archive) as tar:
                    tar.extractall(scratch, filter="data")
            inner = Path(scratch) / folder.name
            if not inner.is_dir():
                raise DataError(f"{archive} holds no folder {folder.name}; delete it and download it again.")
            inner.rename(folder)
    except DataError:
        raise
    except Exception as error:  # tarfile, zipfile, gzip and zlib each have their own
        if isinstance(error, OSError) and error.errno:  # the disk's failure; gzip's OSError has no number
            raise DataError(f"{archive} cannot be unpacked ({error.strerror}); make room and try again.") from error
        raise DataError(f"{archive} is damaged ({error}); delete it and download it again.") from error


def _unzip(archive: Path, scratch: str) -> None:
    with zipfile.ZipFile(archive) as contents:
        for name in contents.namelist():
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise DataError(f"{archive} wants to write to {name}, outside its folder; delete it.")
        contents.extractall(scratch)  # noqa: S202 - names checked above


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


TIMEOUT = 30.0  # seconds without a byte


def get(entry: DatasetInfo, root: Path, progress: Progress, timeout: float = TIMEOUT) -> list[str]:
    """Fetch and unpack what of a data set is not yet below `root`; the names of the files fetched."""
    fetched = []
    for file in entry.files:
        absent = [path for path in file.yields if not (root / path).exists()]
        if not absent:
            continue
        target = root / entry.folder / file.name
        folder = root / file.unpacks_to if file.unpacks_to else None
        if folder and folder.exists():
            raise DataError(f"{root / absent[0]} is missing; move {folder} away and run `dsui data get {entry.name}`.")
        here = target.exists()
        if here and (problem := _problem(target, file)):
            raise DataError(f"{target} is not the published file: {problem}; delete it and try again.")
        if not here:
            fetch(file, target, entry.name, progress, timeout)
            fetched.append(file.name)
        if folder:
            unpack(target, folder)
            if not here:
                target.unlink()
    return fetched


def fetch(file: RemoteFile, target: Path, name: str, progress: Progress, timeout: float = TIMEOUT) -> None:
    """Bring `file` of the data set `name` to `target` from the first address that delivers it whole."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target.parent} cannot be made ({error.strerror}); choose another --root.") from error
    failures = []
    for address in file.addresses:
        part = target.with_name(f"{target.name}.{urlsplit(address).netloc.replace(':', '-')}.part")
        try:
            transfer(address, part, file.name, progress, timeout)
        except TransferError as error:
            failures.append(f"{address}: {error}")
            continue
        if problem := _problem(part, file):
            part.unlink()
            failures.append(f"{address}: {problem}")
            continue
        part.replace(target)
        for leftover in target.parent.glob(f"{target.name}.*.part"):
            leftover.unlink()
        return
    raise DataError(
        f"{file.name} could not be downloaded ({'; '.join(failures)}); try again later, "
        f"or put the file into {target.parent} by hand and run `dsui data get {name}`."
    )


def _problem(path: Path, file: RemoteFile) -> str | None:
    with path.open("rb") as stream:
        if stream.read(len(file.begins)) != file.begins:
            return "it does not begin as its format does"
        stream.seek(0)
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if file.md5 and digest != file.md5:
        return f"its md5 is {digest}, published is {file.md5}"
    return None
