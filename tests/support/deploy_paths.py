"""The three paths of docs/deploy.md, run as a reader would: a file, a server, a cluster."""

from __future__ import annotations

import csv
import json
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.fences import ROOT, fences, run_shell
from tests.support.server import PATIENCE, running_server

DEPLOY = ROOT / "docs" / "deploy.md"
SHOWN_PORT = "8000"


def blocks(language: str) -> list[str]:
    return [fence.text for fence in fences(DEPLOY) if fence.language == language]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def follow_the_file_path(images: int) -> None:
    """In a folder with runs/mine and inbox."""
    file_block, _ = blocks("bash")
    run_shell(file_block)
    with Path("decisions.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == images
    assert {row["decision"] for row in rows} <= {"accept", "reject"}
    assert all(row["error"] == "" for row in rows)


def follow_the_server_path() -> None:
    """In the same folder, afterwards."""
    _, server_block = blocks("bash")
    printed = run_shell(server_block.replace(SHOWN_PORT, free_port()))
    (answer,) = json.loads(printed)["images"]
    assert answer["label"] == "0"
    assert answer["decision"] == "accept"


def follow_the_cluster_path() -> None:
    """The words of the image's CMD start a server, and the manifest's probes find what they ask for."""
    (dockerfile,), (manifest,) = blocks("dockerfile"), blocks("yaml")
    lines = dict(line.split(" ", 1) for line in dockerfile.splitlines())
    words: list[str] = json.loads(lines["CMD"])
    assert words[:2] == ["dsui", "serve"]
    copied, place = lines["COPY"].split()
    assert words[2] == place
    (container,) = yaml.safe_load(manifest)["spec"]["template"]["spec"]["containers"]
    shown: dict[str, Any] = {name: container[name]["httpGet"] for name in container if name.endswith("Probe")}
    port = words[words.index("--port") + 1]
    assert {str(each["port"]) for each in shown.values()} == {port, str(container["ports"][0]["containerPort"])}
    assert [each["name"] for each in container["env"]] == ["DSUI_TOKEN"]
    changed = {place: copied, "0.0.0.0": "127.0.0.1", "10": "0.5"}  # noqa: S104 - shown, and not used
    given = [changed.get(word, word) for word in words[2:]]
    del given[given.index("--port") : given.index("--port") + 2]
    with running_server(Path(), *given, token="a-token") as server:  # noqa: S106
        for probe in shown.values():
            assert httpx.get(f"{server.address}{probe['path']}", timeout=PATIENCE).status_code == 200
        image = Path("inbox/11.png").read_bytes()
        address = f"{server.address}/v1/predict"
        assert httpx.post(address, content=image, timeout=PATIENCE).status_code == 401
        allowed = {"Authorization": "Bearer a-token"}
        assert httpx.post(address, content=image, headers=allowed, timeout=PATIENCE).status_code == 200
        server.send(signal.SIGTERM)
        assert httpx.get(f"{server.address}/readyz", timeout=PATIENCE).status_code in {200, 503}
        assert server.process.wait(PATIENCE) == 0
