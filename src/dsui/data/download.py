"""Download a published data set, check its files and unpack its archives; no interruption leaves half a data set.

* Each file has addresses, the official one first, then mirrors. They are tried in turn until one delivers.
* Bytes are written to NAME.HOST.part, one such file for each host, because only bytes of one host surely belong
  together. A transfer that broke off continues where it stopped, also on another day.
* A complete part is renamed to NAME if its first bytes and its checksum are right.
* A server that sends more bytes than the file has is left, and what it sent is deleted.
* An archive is unpacked completely or not at all, and nothing is written outside its own folder. One that would become
  larger than any data set here is refused.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from dsui.data.checksum import algorithm_of, checksum_of
from dsui.data.info import DatasetInfo, RemoteFile
from dsui.errors import DataError
from dsui.excerpt import shorten
from dsui.progress import Progress
from dsui.regular_file import open_regular

TIMEOUT = 30.0
"""Seconds without a byte after which a server is given up."""
ATTEMPTS = 8
"""Transfers from one address; each must have got further than the one before, and none may have timed out."""
CHUNK = 1 << 16
LARGEST_UNPACKED, MOST_MEMBERS = 1 << 30, 200_000
"""Bytes and files of an archive; Tiny ImageNet has the most of both, 250 MB in 120,609 files."""


class TransferError(Exception):
    """Why an address did not deliver its file."""


class TooLongError(TransferError):
    """An address sends more than the published file."""


def get(dataset: DatasetInfo, root: Path, progress: Progress, timeout: float = TIMEOUT) -> list[str]:
    """Download and unpack the files of a data set that are missing below `root`; the names of the downloaded files."""
    downloaded = []
    for file in dataset.files:
        absent = [path for path in file.yields if not (root / path).exists()]
        if not absent:
            continue
        target = root / dataset.folder / file.name
        folder = root / file.unpacks_to if file.unpacks_to else None
        if folder and folder.exists():
            raise DataError(
                f"{root / absent[0]} is missing; move {folder} away and run `dsui data get {dataset.name}`."
            )
        already_there = target.exists()
        if already_there and (problem := _problem(target, file)):
            raise DataError(f"{target} is not the published file: {problem}; delete it and try again.")
        if not already_there:
            fetch(file, target, dataset.name, progress, timeout)
            downloaded.append(file.name)
        if folder:
            unpack(target, folder)
            if not already_there:
                target.unlink()
    return downloaded


def fetch(file: RemoteFile, target: Path, name: str, progress: Progress, timeout: float = TIMEOUT) -> None:
    """Download `file` of the data set `name` to `target` from the first address that delivers all of it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target.parent} cannot be created ({error.strerror}); choose another --root.") from error
    failures = []
    for address in file.addresses:
        part = target.with_name(f"{target.name}.{urlsplit(address).netloc.replace(':', '-')}.part")
        try:
            _transfer(address, part, file, progress, timeout)
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


def unpack(archive: Path, folder: Path) -> None:
    """Create `folder` from the folder of the same name in a tar or zip archive.

    The files go to a temporary folder beside it first, so that an interruption or a full disk leaves no half of it.
    """
    try:
        with TemporaryDirectory(prefix=".unpacking-", dir=folder.parent, ignore_cleanup_errors=True) as temporary:
            with open_regular(archive) as stream:
                (_unzip if archive.suffix == ".zip" else _untar)(stream, archive, temporary)
            inner = Path(temporary) / folder.name
            if not inner.is_dir():
                raise DataError(f"{archive} holds no folder {folder.name}; delete it and download it again.")
            inner.rename(folder)
    except DataError:
        raise
    except Exception as error:  # tarfile, zipfile, gzip and zlib each have their own
        if isinstance(error, OSError) and error.errno:  # the disk failed; gzip's OSError has no number
            raise DataError(f"{archive} cannot be unpacked ({error.strerror}); make room and try again.") from error
        raise DataError(f"{archive} is damaged ({shorten(error)}); delete it and download it again.") from error


def _unzip(stream: BinaryIO, archive: Path, folder: str) -> None:
    with zipfile.ZipFile(stream) as contents:
        members = contents.infolist()
        for member in members:
            if member.filename.startswith("/") or ".." in PurePosixPath(member.filename).parts:
                raise DataError(
                    f"{archive} wants to write to {shorten(member.filename)}, outside its folder; delete it."
                )
        if len(members) > MOST_MEMBERS or sum(member.file_size for member in members) > LARGEST_UNPACKED:
            raise _too_large(archive)
        contents.extractall(folder)  # noqa: S202 - names and sizes checked above


def _untar(stream: BinaryIO, archive: Path, folder: str) -> None:
    """Read once from beginning to end, so that no more than the limit is ever decompressed."""
    with _LimitedGzip(stream, archive) as limited, tarfile.open(fileobj=limited, mode="r|") as tar:
        for count, member in enumerate(tar):
            if count >= MOST_MEMBERS:
                raise _too_large(archive)
            if not (member.isfile() or member.isdir()):
                raise tarfile.TarError("it holds something other than files and folders")
            tar.extract(member, folder, filter="data")
        while limited.read(CHUNK):
            pass  # the checksum comes after the last byte


class _LimitedGzip(gzip.GzipFile):
    """Gives LARGEST_UNPACKED bytes at most; more of them are an error."""

    def __init__(self, stream: BinaryIO, archive: Path) -> None:
        super().__init__(fileobj=stream)
        self.archive, self.count = archive, 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.count += len(content)
        if self.count > LARGEST_UNPACKED:
            raise _too_large(self.archive)
        return content


def _too_large(archive: Path) -> DataError:
    return DataError(
        f"{archive} unpacks to more than {LARGEST_UNPACKED:,} bytes or {MOST_MEMBERS:,} files, which no data set here "
        "does; delete it."
    )


def _problem(path: Path, file: RemoteFile) -> str | None:
    """How a file on disk differs from the published one; None if it does not."""
    try:
        with open_regular(path, file.largest) as stream:
            if stream.read(len(file.begins)) != file.begins:
                return "it does not begin as its format does"
        if file.checksum and (found := checksum_of(path, file.checksum)) != file.checksum:
            digest, published = (checksum.partition(":")[2] for checksum in (found, file.checksum))
            return f"its {algorithm_of(found)} is {digest}, published is {published}"
    except OSError as error:
        return error.strerror
    return None


def _transfer(address: str, part: Path, file: RemoteFile, progress: Progress, timeout: float) -> None:
    """Write all bytes at `address` to `part`, which stays on failure unless it is longer than the file."""
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            _request(address, part, file, progress, timeout)
        except TooLongError:
            part.unlink(missing_ok=True)
            raise
        except (OSError, HTTPException, TransferError) as error:
            if isinstance(error, TimeoutError) or _size(part) <= before:
                raise TransferError(_reason(error, timeout)) from error
        else:
            return
    raise TransferError(f"it broke off {ATTEMPTS} times")


def _request(address: str, part: Path, file: RemoteFile, progress: Progress, timeout: float) -> None:
    """One HTTP request for the bytes that `part` does not hold yet."""
    held = _size(part)
    headers = {"User-Agent": "dsui"} | ({"Range": f"bytes={held}-"} if held else {})
    try:
        response = urlopen(Request(address, headers=headers), timeout=timeout)  # noqa: S310 - http(s) constants
    except HTTPError as error:
        with error:
            if error.code != 416 or not held:
                raise
            if error.headers.get("Content-Range") == f"bytes */{held}":
                return  # nothing is left to send: the part is complete
        part.unlink()  # it is longer than the file
        _request(address, part, file, progress, timeout)
        return
    with response:
        done, total = _first_byte_and_length(response, held)
        _check_length(total or 0, file)
        with _disk_errors(part):
            stream = part.open("ab" if done else "wb")
        with stream:
            progress(file.name, done, total)
            while chunk := response.read(CHUNK):
                _check_length(done + len(chunk), file)
                with _disk_errors(part):
                    stream.write(chunk)
                    stream.flush()
                done += len(chunk)
                progress(file.name, done, total)
    if total is not None and done != total:
        raise TransferError(f"it broke off after {done:,} of {total:,} bytes")


def _check_length(length: int, file: RemoteFile) -> None:
    if length > file.largest:
        raise TooLongError(f"it sends {length:,} bytes or more, and the file has at most {file.largest:,}")


def _first_byte_and_length(response: HTTPResponse, held: int) -> tuple[int, int | None]:
    """The position of the first byte to come, and the length of the whole file, None where the server states none."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not span or int(span[1]) != held:
            raise TransferError("it sent another range than the requested one")
        return held, int(span[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None  # a server that does not know ranges starts from 0


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Report a failure of the disk as such: the next mirror would not help."""
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
    return shorten(cause) or type(cause).__name__
