"""Finds the fenced blocks of a Markdown page and runs them as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.support.forked import command

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Fence(NamedTuple):
    language: str
    text: str
    line: int
    """The line of the page where the text begins."""


def fences(page: Path) -> list[Fence]:
    text = page.read_text()
    return [Fence(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in FENCE.finditer(text)]


def run_python(page: Path, fence: Fence, names: dict[str, Any]) -> None:
    """Run a block in the working folder, with `names` as its globals. A failure shows the page and its line."""
    exec(compile("\n" * (fence.line - 1) + fence.text, str(page), "exec"), names)  # noqa: S102


def run_commands(text: str) -> str:
    """Run the commands of a block, each on its own, and return what they print. `dsui` is forked from a process that
    has loaded it."""
    printed = ""
    for line in text.replace("\\\n", "").splitlines():
        words = shlex.split(line)
        printed += _dsui(words[1:]) if words[:1] == ["dsui"] else run_shell(line)
    return printed


def _dsui(words: list[str]) -> str:
    with TemporaryDirectory() as folder:
        out = Path(folder)
        process = command(*words, out=out)
        process.join()
        assert process.exitcode == 0, f"{words}\n{(out / 'stderr').read_text()[-2000:]}"
        return (out / "stdout").read_text()


def run_shell(commands: str) -> str:
    """Run commands in the working folder, with those of this environment first, and return what they print."""
    shell = shutil.which("bash")
    assert shell is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([shell, "-euc", commands], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{commands}\n{done.stderr[-2000:]}"
    return done.stdout
