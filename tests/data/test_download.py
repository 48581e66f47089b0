"""Downloads from a server on this machine that works, breaks off, lies, stalls, ignores ranges or has no file.

Archives are unpacked completely and into their own folder, or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import tarfile
import threading
import time
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from dsui.data import download
from dsui.data.checksum import NAMES
from dsui.data.digits import digit_set
from dsui.data.download import fetch, get, unpack
from dsui.data.info import DatasetInfo, RemoteFile
from dsui.errors import DataError
from dsui.progress import silent

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT = b"\x1f\x8b" + bytes(range(256)) * 2000
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
BREAKS_AT = 200_000
PATIENCE = 0.5  # seconds of silence that count as a stall


class Handler(BaseHTTPRequestHandler):
    """The path says how to misbehave."""

    server: Server

    def do_GET(self) -> None:
        manner = self.path.split("/")[1]
        asked = self.headers.get("Range")
        self.server.requests.append((manner, asked))
        content = self.server.content
        if manner == "absent":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and manner != "rangeless" else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = content[start:]
        if manner == "lies":
            body = bytes(len(body))
        elif manner == "page":
            body = b"<html>Please log in</html>"
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if manner != "lengthless":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if manner == "stalls":
            self.wfile.write(body[:BREAKS_AT])
            self.wfile.flush()
            time.sleep(3 * PATIENCE)
        elif manner == "breaks" and not start:
            self.wfile.write(body[:BREAKS_AT])
        elif manner == "crumbles":
            self.wfile.write(body[:1000])
        else:
            self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None]] = []
        self.content = CONTENT

    def handle_error(self, *_: object) -> None:
        """A client that turns away is what the tests are about."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(server: Server, *manners: str, checksum: str | None = CHECKSUM) -> RemoteFile:
    addresses = tuple(f"http://127.0.0.1:{server.server_port}/{manner}/set.gz" for manner in manners)
    return RemoteFile("set.gz", addresses, yields=("set.gz",), begins=b"\x1f\x8b", checksum=checksum)


def part_of(server: Server, target: Path) -> Path:
    return target.with_name(f"set.gz.127.0.0.1-{server.server_port}.part")


def fetch_and_compare(file: RemoteFile, target: Path) -> None:
    fetch(file, target, "cifar10", silent, PATIENCE)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_file_arrives_complete_and_progress_is_reported(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    target = tmp_path / "new" / "set.gz"
    fetch(remote(server, "works"), target, "cifar10", lambda *progress: seen.append(progress))
    assert target.read_bytes() == CONTENT
    assert seen[0] == ("set.gz", 0, len(CONTENT))
    assert seen[-1] == ("set.gz", len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)


def test_a_broken_transfer_continues_where_it_stopped(server: Server, tmp_path: Path) -> None:
    fetch_and_compare(remote(server, "breaks"), tmp_path / "set.gz")
    assert server.requests == [("breaks", None), ("breaks", f"bytes={BREAKS_AT}-")]


def test_a_transfer_of_an_earlier_day_is_continued(server: Server, tmp_path: Path) -> None:
    part_of(server, tmp_path / "set.gz").write_bytes(CONTENT[:5000])
    fetch_and_compare(remote(server, "works"), tmp_path / "set.gz")
    assert server.requests == [("works", "bytes=5000-")]


def test_a_server_without_ranges_starts_from_the_beginning(server: Server, tmp_path: Path) -> None:
    part_of(server, tmp_path / "set.gz").write_bytes(b"old bytes")
    fetch_and_compare(remote(server, "rangeless"), tmp_path / "set.gz")


def test_without_a_stated_length_the_checksum_decides(server: Server, tmp_path: Path) -> None:
    fetch_and_compare(remote(server, "lengthless"), tmp_path / "set.gz")


def test_a_stalled_server_is_left_at_once(server: Server, tmp_path: Path) -> None:
    fetch_and_compare(remote(server, "stalls", "works"), tmp_path / "set.gz")
    assert [manner for manner, _ in server.requests] == ["stalls", "works"]


@pytest.mark.parametrize("held", [CONTENT, CONTENT + b"more"])
def test_a_part_that_is_complete_or_too_long_does_no_harm(server: Server, tmp_path: Path, held: bytes) -> None:
    part_of(server, tmp_path / "set.gz").write_bytes(held)
    fetch_and_compare(remote(server, "works"), tmp_path / "set.gz")


@pytest.mark.parametrize("bad", ["absent", "lies", "page", "stalls", "crumbles"])
@pytest.mark.parametrize("checksum", [CHECKSUM, None])
def test_the_next_mirror_is_tried_when_one_fails(
    server: Server, tmp_path: Path, bad: str, checksum: str | None
) -> None:
    fetch_and_compare(remote(server, bad, "works", checksum=checksum), tmp_path / "set.gz")


@pytest.mark.parametrize("manner", ["works", "lengthless"])  # the length is announced, and it is not
def test_a_server_that_sends_too_much_is_left_and_its_bytes_deleted(
    server: Server, tmp_path: Path, manner: str
) -> None:
    file = replace(remote(server, manner), largest=len(CONTENT) - 1)
    with pytest.raises(DataError, match=r"it sends 51\d,\d+ bytes or more, and the file has at most 512,001"):
        fetch(file, tmp_path / "set.gz", "cifar10", silent, PATIENCE)
    assert list(tmp_path.iterdir()) == []
    assert len(server.requests) == 1


def test_when_all_mirrors_fail_every_reason_is_named_and_what_to_do_by_hand(server: Server, tmp_path: Path) -> None:
    dead = "http://127.0.0.1:1/set.gz"
    file = remote(server, "absent", "lies", "stalls")
    file = RemoteFile(file.name, (*file.addresses, dead), file.yields, file.begins, checksum=file.checksum)
    with pytest.raises(DataError) as failure:
        fetch(file, tmp_path / "set.gz", "cifar10", silent, PATIENCE)
    for reason in (
        "HTTP 404",
        "does not begin as its format",
        f"no byte for {PATIENCE:g} s",
        "refused",
        "dsui data get cifar10",
    ):
        assert reason in str(failure.value)
    assert f"put the file into {tmp_path} by hand" in str(failure.value)
    assert not (tmp_path / "set.gz").exists()


def test_wrong_bytes_are_reported_with_both_checksums(server: Server, tmp_path: Path) -> None:
    for checksum in (CHECKSUM, f"md5:{hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()}"):
        algorithm, _, digest = checksum.partition(":")
        file = remote(server, "works", checksum=f"{algorithm}:{'0' * len(digest)}")
        with pytest.raises(DataError, match=f"its {NAMES[algorithm]} is {digest}, published is 00"):
            fetch(file, tmp_path / "set.gz", "cifar10", silent)
        assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_a_part_and_no_file(server: Server, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int | None) -> None:
        assert (what, total) == ("set.gz", len(CONTENT))
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(remote(server, "works"), tmp_path / "set.gz", "cifar10", interrupt)
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    fetch_and_compare(remote(server, "works"), tmp_path / "set.gz")
    assert server.requests[1][1] is not None


class FullDisk(io.BytesIO):
    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_reported_and_not_blamed_on_the_mirror(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any) -> IO[Any]:
        return FullDisk() if path.suffix == ".part" and mode in {"ab", "wb"} else plain(path, mode, *rest)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\); make room"):
        fetch(remote(server, "works", "works"), tmp_path / "set.gz", "cifar10", silent)
    assert len(server.requests) == 1


def archived(server: Server, manner: str = "works") -> DatasetInfo:
    """A data set whose archive holds the folder `set` with one file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo("set/images")
        member.size = 6
        tar.addfile(member, io.BytesIO(b"pixels"))
    server.content = stream.getvalue()
    address = f"http://127.0.0.1:{server.server_port}/{manner}/set.tar.gz"
    file = RemoteFile("set.tar.gz", (address,), ("set/images",), b"\x1f\x8b", unpacks_to="set")
    return DatasetInfo("set", lambda _, split: digit_set(split), 10, (1, 8, 8), {}, "", "", files=(file,))


def test_an_archive_is_fetched_once_unpacked_and_removed(server: Server, tmp_path: Path) -> None:
    entry = archived(server)
    assert get(entry, tmp_path, silent) == ["set.tar.gz"]
    assert (tmp_path / "set" / "images").read_bytes() == b"pixels"
    assert get(entry, tmp_path, silent) == []
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert len(server.requests) == 1


def test_an_archive_put_there_by_hand_needs_no_network(server: Server, tmp_path: Path) -> None:
    entry = archived(server, "absent")
    (tmp_path / "set.tar.gz").write_bytes(server.content)
    assert get(entry, tmp_path, silent) == []
    assert (tmp_path / "set" / "images").exists()
    assert server.requests == []


def test_existing_files_are_never_overwritten(server: Server, tmp_path: Path) -> None:
    entry = archived(server)
    (tmp_path / "set.tar.gz").write_text("something else")
    with pytest.raises(DataError, match=r"set.tar.gz is not the published file.*delete it"):
        get(entry, tmp_path, silent)
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match=r"set/images is missing; move .*set away"):
        get(entry, tmp_path, silent)


def write_archive(path: Path, *names: str) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as contents:
            for name in names:
                contents.writestr(name, "x" * 5000)
    else:
        with tarfile.open(path, "w:gz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 5000
                tar.addfile(member, io.BytesIO(b"x" * 5000))
    return path


@pytest.fixture(params=["set.zip", "set.tar.gz"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    path: Path = tmp_path / "root" / request.param
    return path


def test_an_archive_becomes_a_folder_with_all_its_files(archive: Path) -> None:
    write_archive(archive, "set/a", "set/b/c")
    unpack(archive, archive.parent / "set")
    assert (archive.parent / "set" / "b" / "c").stat().st_size == 5000
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, "set"}


@pytest.mark.parametrize("name", ["../outside", "set/../../outside"])
def test_an_archive_writes_nothing_outside_its_folder(archive: Path, name: str) -> None:
    write_archive(archive, "set/a", name)
    with pytest.raises(DataError, match="outside"):
        unpack(archive, archive.parent / "set")
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert [path.name for path in archive.parent.parent.iterdir()] == ["root"]


def test_an_archive_with_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        tar.addfile(link)
    with pytest.raises(DataError, match="damaged"):
        unpack(path, tmp_path / "set")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("limit", "value"), [("LARGEST_UNPACKED", 36_000), ("MOST_MEMBERS", 4)])
def test_an_archive_that_becomes_too_large_leaves_nothing(
    archive: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(download, limit, value)
    write_archive(archive, *(f"set/{number}" for number in range(4)))
    unpack(archive, archive.parent / "set")
    shutil.rmtree(archive.parent / "set")
    write_archive(archive, *(f"set/{number}" for number in range(8)))
    with pytest.raises(DataError, match="which no data set here does; delete it"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.parametrize("kept", [20, -30])
def test_a_broken_archive_leaves_nothing(archive: Path, kept: int) -> None:
    write_archive(archive, "set/a", "set/b")
    archive.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(DataError, match="is damaged"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]


def test_a_full_disk_while_unpacking_is_reported_and_leaves_nothing(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_archive(archive, "set/a")
    monkeypatch.setattr(shutil, "copyfileobj", full)
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    with pytest.raises(DataError, match=r"cannot be unpacked \(No space left on device\); make room"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]


def test_an_archive_with_another_folder_is_refused(archive: Path) -> None:
    write_archive(archive, "other/a")
    with pytest.raises(DataError, match="holds no folder set"):
        unpack(archive, archive.parent / "set")
    assert list(archive.parent.iterdir()) == [archive]
