"""A page in a headless Chromium, by the DevTools protocol over two pipes: no driver, no port, no package.

The protocol: https://chromedevtools.github.io/devtools-protocol/. With --remote-debugging-pipe Chromium reads commands
from descriptor 3 and answers on descriptor 4, each message JSON that ends with a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0
"""Seconds until an answer that does not come is an error."""
HEIGHT = 900
"""Of a window, in pixels."""
KEYS = {"Tab": 9, "Enter": 13}
"""Codes of keys."""
FREE = 10
"""Descriptors from here on are out of the way of 3 and 4."""

CONTRASTS = """(() => {
    const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const light = text => rgb(text).slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
    const paper = e => {
        for (; e; e = e.parentElement) {
            const color = getComputedStyle(e).backgroundColor;
            if (!/rgba\\(.*, 0\\)|transparent/.test(color)) return color;
        }
        return "rgb(255, 255, 255)";
    };
    return [...document.body.querySelectorAll("*")]
        .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(e => {
            const style = getComputedStyle(e);
            const lights = [light(e instanceof SVGElement ? style.fill : style.color), light(paper(e))];
            return [(Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05), e.textContent.slice(0, 40)];
        });
})()"""
"""Of every element with text of its own: the contrast with what lies behind it (WCAG 2.1), and the text."""


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a running Chromium."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer, self._number, self._session = b"", 0, ""
        self._loaded = False
        self.errors: list[str] = []
        """What scripts, styles and requests of the page complained about."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def show(self, page: Path | str, width: int, dark: bool = False, media: str = "screen") -> None:
        """Open a file or an address in a window of `width` CSS pixels."""
        self.errors = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not self._loaded:
            self._note(self._read())

    def evaluate(self, script: str) -> Any:
        """The value of an expression in JavaScript."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", "the script failed"))
        return found["result"].get("value")

    def choose_files(self, selector: str, files: Sequence[Path]) -> None:
        """What a person does with the dialog of a field for files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        field = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=field, files=[str(file) for file in files])

    def drop_files(self, x: float, y: float, files: Sequence[Path]) -> None:
        """What a person does who drags files from another window and lets them go here."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def press(self, key: str) -> None:
        """A key by its name, as Tab."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def screenshot(self, box: tuple[float, float, float, float]) -> bytes:
        """A PNG of a box of the whole page: left, top, width, height."""
        clip = {**dict(zip(("x", "y", "width", "height"), box, strict=True)), "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer within {PATIENCE:.0f} s.")
            if not (part := os.read(self._answers, 1 << 20)):
                raise RuntimeError("Chromium ended.")
            self._buffer += part
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.errors.append(str(found["exceptionDetails"].get("exception", found["exceptionDetails"])))
            case "Log.entryAdded" if found["entry"]["level"] in {"error", "warning"}:
                self.errors.append(found["entry"]["text"])
            case _:
                pass


@contextmanager
def open_browser(executable: str, profile: Path) -> Iterator[Browser]:
    """A Chromium with its profile in an empty folder; it ends with the block."""
    (command_end, commands), (answers, answer_end) = os.pipe(), os.pipe()
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FREE) for end in (command_end, answer_end)]
    ours = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FREE) for end in (commands, answers)]
    for end in (command_end, commands, answers, answer_end):
        os.close(end)
    process = os.posix_spawn(
        executable,
        [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, theirs[0], 3),
            (os.POSIX_SPAWN_DUP2, theirs[1], 4),
        ],
        setsid=True,
    )
    for end in theirs:
        os.close(end)
    try:
        yield Browser(*ours)
    finally:
        for end in ours:
            os.close(end)
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
