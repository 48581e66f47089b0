"""A real server under faults: floods, bombs, slow and leaving clients, rubbish in place of its model, and its end."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.onnx_model import write_onnx_model
from tests.support.server import PATIENCE, Server, png, running_server, wait_for

SECONDS = 2.0
"""The limit of time of the shared server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    write_onnx_model(folder / "tiny.onnx")
    with running_server(folder, folder / "tiny.onnx", "--seconds", SECONDS) as started:
        yield started
        started.send(signal.SIGTERM)
        assert started.process.wait(PATIENCE) == 0
        assert started.events("request"), "the log has lines of JSON"
        assert not [line for line in started.events("request") if line["status"] == 500]


def answer_to(request: bytes, server: Server) -> bytes:
    """What comes back until the server closes."""
    with server.connect() as connection:
        connection.sendall(request)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(length: int, *more: str) -> bytes:
    lines = ["POST /v1/predict HTTP/1.1", "Host: here", "Content-Type: image/png", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def alive(server: Server) -> bool:
    return httpx.post(f"{server.address}/v1/predict", content=png(), timeout=PATIENCE).status_code == 200


def test_the_process_needs_no_torch(server: Server) -> None:
    maps = Path(f"/proc/{server.process.pid}/maps")
    if not maps.exists():
        pytest.skip("there is no /proc here that lists what a process has loaded")
    assert "onnxruntime" in maps.read_text()
    assert "libtorch" not in maps.read_text()


def test_ten_thousand_tiny_files_in_one_request_are_refused_at_once(server: Server) -> None:
    files = [("files", (f"{number}.png", b"x")) for number in range(10_000)]
    form = httpx.Request("POST", server.address, files=files)
    content, kind = form.read(), form.headers["content-type"]
    begin = time.monotonic()
    found = httpx.post(
        f"{server.address}/v1/predict", content=content, headers={"content-type": kind}, timeout=PATIENCE
    )
    assert found.status_code == 413
    assert "64 files" in found.json()["error"]
    assert time.monotonic() - begin < 20  # a second when written; a busy machine is slower
    assert alive(server)


def bomb(side: int) -> bytes:
    """A PNG of side x side grey pixels in a few kilobytes a million."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    press = zlib.compressobj(9)
    rows = b"".join(press.compress(b"\0" * (side + 1)) for _ in range(side)) + press.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_decompression_bombs_are_refused_by_their_header_and_cost_no_memory(server: Server) -> None:
    content = bomb(8000)
    assert len(content) < 100_000 < 8000**2
    before = memory(server)
    found = httpx.post(
        f"{server.address}/v1/predict", files=[("files", (f"{n}.png", content)) for n in range(20)], timeout=PATIENCE
    )
    assert found.status_code == 422
    assert {each["error"] for each in found.json()["images"]} == {
        "its header announces 8000 x 8000 pixels, more than 50,000,000"
    }
    assert memory(server) - before < 60 << 20, "one of them decoded has 64 MB, and all have 1.3 GB"
    assert alive(server)


def memory(server: Server) -> int:
    """Bytes of the process; 0 where the system does not tell."""
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        return 0
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def test_a_body_that_trickles_is_ended_by_the_limit_of_time(server: Server) -> None:
    begin = time.monotonic()
    with server.connect() as connection:
        connection.sendall(head(10_000) + b"\x89PNG")
        found = read_all(connection)
    assert b" 408 " in found.splitlines()[0]
    assert b"did not arrive in time" in found
    assert SECONDS - 0.1 < time.monotonic() - begin < PATIENCE
    assert alive(server)


def test_a_head_that_does_not_come_is_not_waited_for(server: Server) -> None:
    begin = time.monotonic()
    with ExitStack() as closing_all:
        connections = [closing_all.enter_context(server.connect()) for _ in range(3)]
        for connection, sent in zip(connections, (b"", b"POST /v1/pre", head(10)[:-2]), strict=True):
            connection.sendall(sent)
        assert [read_all(connection) for connection in connections] == [b"", b"", b""]
    assert SECONDS - 0.1 < time.monotonic() - begin < PATIENCE


def test_a_client_that_drips_bytes_of_its_head_is_cut_off_all_the_same(server: Server) -> None:
    begin = time.monotonic()
    with server.connect() as connection:
        try:
            for byte in head(10):
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
                assert time.monotonic() - begin < PATIENCE
        except OSError:
            pass  # the server has left
    assert time.monotonic() - begin < SECONDS + 10


def test_an_announced_flood_is_refused_before_it_is_sent(server: Server) -> None:
    found = answer_to(head(1 << 40, "Expect: 100-continue"), server)
    assert b" 413 " in found.splitlines()[0]
    assert b"connection: close" in found.lower()


def test_a_body_somewhat_too_large_hears_why(server: Server) -> None:
    found = httpx.post(f"{server.address}/v1/predict", content=b"x" * (33 << 20), timeout=PATIENCE)
    assert found.status_code == 413
    assert "33,554,432 bytes" in found.json()["error"]


def test_what_is_no_http_is_answered_or_dropped_and_harms_nobody(server: Server) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET\r\n\r\n", b"\0" * 1000, b"A" * 100_000):
        answer_to(garbage, server)
    assert alive(server)


def test_beyond_the_limit_of_connections_probes_are_answered_and_those_within_go_on(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "tiny.onnx")
    code = (
        "from pathlib import Path; from dsui.serving.server import serve; from dsui.serving.settings import *;"
        "serve({'tiny': Path('tiny.onnx')}, ServerSettings(connections=2), '127.0.0.1', 0, lambda at, _: print(at))"
    )
    command = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process, ExitStack() as ending:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        clients = [ending.enter_context(httpx.Client(base_url=address, timeout=PATIENCE)) for _ in range(3)]
        first, second, third = clients
        for each in (first, second):
            assert each.get("/readyz").status_code == 200
        assert third.get("/healthz").status_code == 200, "or a flood of connections would have the server restarted"
        refused = third.post("/v1/predict", content=png())
        assert (refused.status_code, refused.headers["retry-after"], refused.headers["connection"]) == (
            503,
            "1",
            "close",
        )
        assert "connections" in refused.json()["error"]
        assert first.post("/v1/predict", content=png()).status_code == 200
        second.close()
        wait_for(lambda: third.post("/v1/predict", content=png()).status_code == 200, "a place that is free again")
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_server_is_allowed_more_files_than_its_connections_need() -> None:
    code = (
        "from resource import *; few, most = getrlimit(RLIMIT_NOFILE); setrlimit(RLIMIT_NOFILE, (256, most));"
        "from dsui.serving.connection import allow_files; allow_files(); print(getrlimit(RLIMIT_NOFILE)[0], most)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    allowed, most = map(int, done.stdout.split())
    assert allowed == (8192 if most < 0 else min(8192, most))


def test_a_client_that_leaves_is_forgotten(server: Server) -> None:
    for _ in range(20):
        with server.connect() as connection:
            connection.sendall(head(len(png())) + png())
        with server.connect() as connection:
            connection.sendall(head(100_000) + b"x" * 5000)
    lines = httpx.get(f"{server.address}/metrics").text.splitlines()
    assert alive(server)
    wait_for(lambda: 'dsui_admitted_images{model="tiny"} 0.0' in _metrics(server), "an empty queue")
    wait_for(lambda: "dsui_requests_open 1.0" in _metrics(server), "no open request but this")
    assert lines


def _metrics(server: Server) -> list[str]:
    return httpx.get(f"{server.address}/metrics", timeout=PATIENCE).text.splitlines()


def test_names_of_files_cannot_write_into_the_log_or_the_answer(server: Server) -> None:
    name = 'a"\r\n{"event": "forged"}\x1b[31m.png'
    found = httpx.post(f"{server.address}/v1/predict", files=[("files", (name, b"no image"))], timeout=PATIENCE)
    assert found.headers["content-type"] == "application/json"
    httpx.get(f"{server.address}/%0a%7b%22event%22:%22forged%22%7d", timeout=PATIENCE)
    assert server.events("forged") == []


def _has_failed(server: Server, times: int) -> bool:
    return len(server.events("reload failed")) == times


class Clients:
    """Threads that ask one after the other on a connection each, or on a new one each time, until the server closes it
    or `stop` is set."""

    def __init__(self, server: Server, count: int, reconnect: bool = False) -> None:
        self.stop, self.answers, self.lost = threading.Event(), list[dict[str, Any]](), list[str]()
        self.statuses: list[int] = []
        self._server, self._reconnect = server, reconnect
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for each in self._threads:
            each.start()

    def join(self) -> None:
        for each in self._threads:
            each.join(PATIENCE)
            assert not each.is_alive()

    def _ask(self) -> None:
        asking = True
        while asking:
            connection = http.client.HTTPConnection(self._server.host, self._server.port, timeout=PATIENCE)
            with closing(connection):
                try:
                    connection.connect()
                except ConnectionRefusedError:
                    return
                self._ask_on(connection)
            asking = self._reconnect and not self.lost

    def _ask_on(self, connection: http.client.HTTPConnection) -> None:
        while not self.stop.is_set():
            try:
                connection.request("POST", "/v1/predict", png(), {"Content-Type": "image/png"})
                found = connection.getresponse()
                content = json.loads(found.read())
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
                return
            self.statuses.append(found.status)
            self.answers.append(content)
            if self._reconnect or found.getheader("connection") == "close":
                return


@pytest.mark.parametrize("reconnect", [False, True], ids=["the same connection", "new connections"])
def test_after_sigterm_every_request_that_was_taken_is_answered(tmp_path: Path, reconnect: bool) -> None:
    write_onnx_model(tmp_path / "tiny.onnx")
    with running_server(tmp_path, tmp_path / "tiny.onnx") as server:
        clients = Clients(server, 64 if reconnect else 16, reconnect)
        wait_for(lambda: len(clients.statuses) > 100, "load")
        server.send(signal.SIGTERM)
        clients.join()
        assert server.process.wait(PATIENCE) == 0
        assert clients.lost == []
        assert set(clients.statuses) == {200}
        assert len(server.events("request")) == len(clients.statuses), "what the log has was answered"
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_a_model_is_exchanged_without_dropping_a_request_and_rubbish_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "tiny.onnx"
    write_onnx_model(file)
    good = file.read_bytes()
    with running_server(tmp_path, file) as server:
        clients = Clients(server, 4)
        for number, rubbish in enumerate((b"rubbish", good[:-100], b""), 1):
            file.write_bytes(rubbish)
            server.send(signal.SIGHUP)
            wait_for(partial(_has_failed, server, number), "a failed reload")
        state = httpx.get(f"{server.address}/readyz", timeout=PATIENCE)
        assert state.status_code == 200, "the model before goes on"
        assert state.json()["models"]["tiny"]["reload_failed"] is True
        assert 'dsui_reload_failed{model="tiny"} 1.0' in _metrics(server)
        assert all(line["kept"] and "tiny.onnx" in line["reason"] for line in server.events("reload failed"))
        write_onnx_model(file, classes=("ant", "bee", "wasp"), size=4)
        server.send(signal.SIGHUP)
        wait_for(lambda: server.events("model retired"), "an exchange")
        seen = len(clients.answers)
        wait_for(lambda: len(clients.answers) > seen + 20, "answers of the new model")
        clients.stop.set()
        clients.join()
        assert clients.lost == []
        assert set(clients.statuses) == {200}
        labels = [answer["images"][0]["label"] for answer in clients.answers]
        assert {"cat", "dog", "owl"} & set(labels[:5])
        assert {"ant", "bee", "wasp"} & set(labels[-5:])
        assert httpx.get(f"{server.address}/readyz").json()["models"]["tiny"]["reload_failed"] is False
        assert len({answer["version"] for answer in clients.answers}) == 2
        server.send(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


def test_a_full_queue_is_503_with_a_time_to_come_back_and_the_token_comes_from_the_environment(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "tiny.onnx")
    with running_server(tmp_path, tmp_path / "tiny.onnx", "--queue", 1, "--files", 1, token="s3cret") as server:  # noqa: S106
        address, allowed = f"{server.address}/v1/predict", {"Authorization": "Bearer s3cret"}
        assert httpx.post(address, content=png(), timeout=PATIENCE).status_code == 401
        large = png(size=(3000, 3000))  # takes long enough to decode that others come meanwhile
        found: list[httpx.Response] = []
        threads = [
            threading.Thread(
                target=lambda: found.append(httpx.post(address, content=large, headers=allowed, timeout=PATIENCE))
            )
            for _ in range(12)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE)
        assert {each.status_code for each in found} == {200, 503}
        assert all(int(each.headers["retry-after"]) >= 1 for each in found if each.status_code == 503)
        assert "s3cret" not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
        assert not [line for line in server.events("request") if "s3cret" in json.dumps(line)]
