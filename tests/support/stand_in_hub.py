"""A stand-in for the Hugging Face hub on this machine: the part of its HTTP API that publishing and loading need.

It keeps repositories in memory as commits on branches. Files of safetensors go by Git LFS, others with the commit. The
hub's own transfer, Xet, is not here. Whoever writes must send TOKEN.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_standin"  # noqa: S105 - of nothing but this server
LARGE = ".safetensors"
Files = dict[str, bytes]


class Hub:
    """`branches` by repository and name: a commit; `commits` by its hash: the files."""

    def __init__(self) -> None:
        self.branches: dict[str, dict[str, str]] = {}
        self.commits: dict[str, Files] = {}
        self.uploads: Files = {}
        self.fetched: list[str] = []
        """The files that were downloaded."""
        self.address = ""

    def commit(self, repository: str, branch: str, files: Files) -> str:
        """Make a commit of whole contents."""
        content = repr((repository, len(self.commits), sorted(files.items()))).encode()
        sha = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        self.commits[sha] = files
        self.branches.setdefault(repository, {})[branch] = sha
        return sha

    def sha(self, repository: str, revision: str) -> str | None:
        """The commit that a branch or the beginning of an address names."""
        named = self.branches[repository].get(revision)
        return named or (revision if revision in self.commits else None)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """The server, until the end of the context."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self._info(*found.groups(default="main"))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(?:/.*)?", path):
            self._tree(*found.groups())
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*found.groups())
        else:
            self._answer(404, {"error": f"no {path}"})

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid credentials"})
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/([^/]+)", self.path):
            repository, branch = found.groups()
            self.hub.branches[repository].setdefault(branch, self.hub.branches[repository]["main"])
            self._answer(200, {})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", self.path):
            modes = {True: "lfs", False: "regular"}
            files = [
                {"path": each["path"], "uploadMode": modes[each["path"].endswith(LARGE)], "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self._answer(200, {"files": files})
        elif self.path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**each, "actions": {"upload": {"href": f"{self.hub.address}/upload/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            self._answer(200, {"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", self.path):
            self._commit(found[1], found[2], [json.loads(line) for line in body.splitlines()])
        else:
            self._answer(404, {"error": f"no {self.path}"})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.uploads[self.path.rpartition("/")[2]] = body
        self._answer(200, {})

    def _create(self, wanted: dict[str, Any]) -> None:
        repository = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        status = 409 if repository in self.hub.branches else 200
        if status == 200:
            self.hub.commit(repository, "main", {".gitattributes": b""})
        self._answer(status, {"url": f"{self.hub.address}/{repository}", "name": repository})

    def _commit(self, repository: str, branch: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.hub.commits[self.hub.branches[repository][branch]])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = self.hub.commit(repository, branch, files)
        address = f"{self.hub.address}/{repository}/commit/{sha}"
        self._answer(200, {"success": True, "commitOid": sha, "commitUrl": address, "hookOutput": ""})

    def _files(self, repository: str, revision: str) -> tuple[str, Files] | None:
        """The commit and its files; answers the request where there are none."""
        if repository not in self.hub.branches:
            self._answer(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return None
        sha = self.hub.sha(repository, revision)
        if sha is None:
            self._answer(404, {"error": "Invalid rev"}, {"X-Error-Code": "RevisionNotFound"})
            return None
        return sha, self.hub.commits[sha]

    def _info(self, repository: str, revision: str) -> None:
        if found := self._files(repository, revision):
            sha, files = found
            siblings = [{"rfilename": name} for name in files]
            self._answer(200, {"_id": sha, "id": repository, "sha": sha, "siblings": siblings, "private": False})

    def _tree(self, repository: str, revision: str) -> None:
        if found := self._files(repository, revision):
            self._answer(
                200,
                [
                    {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
                    for name, content in found[1].items()
                ],
            )

    def _file(self, repository: str, revision: str, name: str) -> None:
        if not (found := self._files(repository, revision)):
            return
        sha, files = found
        if name not in files:
            self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
            return
        if self.command == "GET":
            self.hub.fetched.append(name)
        self._send(200, files[name], {"X-Repo-Commit": sha, "ETag": f'"{_digest(files[name])}"'})

    def _answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _digest(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
