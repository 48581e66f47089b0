"""JSON on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsui.cli.json_output import print_json


def test_nan_and_infinity_become_null_and_paths_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), 1.5, (float("inf"),)], "b": Path("run")})
    assert "".join(capsys.readouterr().out.split()) == '{"a":[null,1.5,[null]],"b":"run"}'
