"""The command before anything of it is loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsui import __main__, __version__
from dsui.cli import app

INTERRUPTED = """
import sys

class CtrlC:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from dsui.__main__ import main
main()
"""


def test_ctrl_c_while_loading_is_one_sentence_and_status_130() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "dsui: stopped.\n")


TERMINATED = """
import os, signal, sys, tempfile, time
import dsui.cli.application

def work():
    with tempfile.TemporaryDirectory(dir=sys.argv[1]):
        os.kill(os.getpid(), int(sys.argv[2]))
        time.sleep(30)

dsui.cli.application.app = work
signal.signal(int(sys.argv[2]), signal.SIG_DFL)  # which nohup and scripts in the background change
dsui.cli.application.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_no_temporary_files(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", TERMINATED, str(tmp_path), str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "dsui: stopped.\n")
    assert list(tmp_path.iterdir()) == []


def test_the_command_and_the_module_start_alike() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    module, function = project["project"]["scripts"]["dsui"].split(":")
    assert getattr(import_module(module), function) is __main__.main
    done = subprocess.run([sys.executable, "-m", "dsui", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "dsui")


def test_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"dsui {__version__}\n"
