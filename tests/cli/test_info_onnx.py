"""`dsui info model.onnx`: what a file says of itself, by either distribution; and what is said of damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from dsui.cli import runtime_application
from dsui.runtime.facts import CHECKS
from tests.support.command_line import dsui
from tests.support.onnx_model import write_onnx_model


def with_checks(file: Path, text: str) -> Path:
    model = onnx.load(file)
    model.metadata_props.add(key=CHECKS, value=text)
    onnx.save(model, file)
    return file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_onnx_model(tmp_path / "model.onnx", limits=("uncertainty", "foreignness"))
    return tmp_path / "model.onnx"


def test_both_distributions_tell_the_same_of_a_file(model: Path) -> None:
    own = CliRunner().invoke(runtime_application.app, ["info", str(model), "--json"])
    assert own.stdout == dsui("info", model, "--json").stdout
    told = json.loads(own.stdout)
    loaded = onnx.load(model)
    assert told["file"]["operations"] == str(len(loaded.graph.node))
    assert told["file"]["ONNX"] == f"opset {loaded.opset_import[0].version}, IR {loaded.ir_version}"
    assert told["decision"]["accepts"] == "uncertainty up to 0.3 and foreignness up to 0.4"
    assert told["checks"]["agreement"] is None


def test_the_runtime_lists_versions_for_a_bug_report() -> None:
    told = json.loads(CliRunner().invoke(runtime_application.app, ["info", "--json"]).stdout)
    assert told["versions"]["numpy"] is not None


@pytest.mark.parametrize("text", ["{", "[]", '{"agreement": 3}', '{"agreement": {"probability": "small"}}'])
def test_checks_that_cannot_be_read_are_one_sentence(model: Path, text: str) -> None:
    result = dsui("info", with_checks(model, text))
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(result.exception) == f"what {model} says of its checks cannot be read; export it again."
