"""What a figure's points need is asked for before anything is trained. Their values are tested with the study."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsui.cli import app
from dsui.errors import DsuiError

GRID = """
title: One figure
figure: {figure}
data: digits
backbone: small
recipe: demo
set: {{epochs: 1}}
seeds: [0]
tasks: [ood]
foreign: [photos]
runs: [{{method: msp}}]
"""


@pytest.mark.parametrize("figure", ["embedding", "distributions"])
def test_only_an_embedding_needs_opentsne_which_is_said_before_training(
    figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[bool] = []
    monkeypatch.setattr("dsui.experiments.study.train", lambda *_: began.append(True))
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    (tmp_path / "grid.yaml").write_text(GRID.format(figure=figure))
    command = ["reproduce", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert CliRunner().invoke(app, [*command, "--dry-run"]).exit_code == 0, "a list needs no package"
    ended = CliRunner().invoke(app, command)
    assert isinstance(ended.exception, DsuiError)
    sentence = "figures and reports need openTSNE; run pip install openTSNE."
    assert (str(ended.exception) == sentence, began) == ((True, []) if figure == "embedding" else (False, [True]))
