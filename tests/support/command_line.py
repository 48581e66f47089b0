"""The command line as tests call it."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner, Result

from dsui.cli import app, main


def dsui(*words: object) -> Result:
    """Run a command in this process, on a terminal of 80 columns."""
    return CliRunner().invoke(app, [*map(str, words)], prog_name="dsui", env={"COLUMNS": "80"})


def exit_status(*words: object) -> int:
    """The exit status of a command that is called as a shell does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dsui", *map(str, words)])
        with pytest.raises(SystemExit) as leaving:
            main()
    return int(leaving.value.code or 0)
