"""A run in a model repository of Triton, whose files are read by Triton's own schema and compared with ONNX Runtime."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from google.protobuf import text_format

from dsui.deploy.predictor import Predictor
from dsui.export.triton_config import labels_text
from dsui.export.triton_repository import export_to_triton
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import calibrated, own_copy
from tests.support.feature_files import digit_features, feature_config, written
from tests.support.feature_files import train as train_on_features

KINDS = {"TYPE_UINT8": np.uint8, "TYPE_FP32": np.float32, "TYPE_INT64": np.int64, "TYPE_BOOL": np.bool_}


def triton_schema() -> Any:
    """Triton's messages as tritonclient ships them; the package itself would import gRPC."""
    package = importlib.util.find_spec("tritonclient")
    assert package is not None
    assert package.submodule_search_locations
    file = Path(package.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEMA = triton_schema()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = own_copy(calibrated(), tmp_path_factory.mktemp("triton") / "mine")
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9, two=True)
    predictor.save_threshold()
    return folder


@pytest.fixture(scope="module")
def repository(run: Path) -> Path:
    """With one version, which tests copy before they add to it."""
    folder = run.parent / "models"
    export_to_triton(run, folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def check_served_as_the_config_says(model: Path, inputs: np.ndarray[Any, Any]) -> Any:
    """Run a batch in ONNX Runtime: each tensor must have the type and, behind the batch, the dims of config.pbtxt."""
    config = text_format.Parse((model / "config.pbtxt").read_text(), SCHEMA.ModelConfig())
    session = onnxruntime.InferenceSession(model / "1" / config.default_model_filename)
    (taken,) = config.input
    assert len(inputs) <= config.max_batch_size
    assert inputs.dtype == KINDS[SCHEMA.DataType.Name(taken.data_type)]
    assert all(dim in {-1, size} for dim, size in zip(taken.dims, inputs.shape[1:], strict=True))
    assert [each.name for each in config.output] == [each.name for each in session.get_outputs()]
    for output, values in zip(config.output, session.run(None, {taken.name: inputs}), strict=True):
        shape = output.reshape.shape if output.HasField("reshape") else output.dims
        assert values.dtype == KINDS[SCHEMA.DataType.Name(output.data_type)], output.name
        assert values.shape == (len(inputs), *shape), output.name
        assert np.prod(output.dims) == np.prod(shape, dtype=int), output.name
    return config


def test_the_config_keeps_the_schema_and_agrees_with_the_graph(repository: Path) -> None:
    model = repository / "mine"
    config = check_served_as_the_config_says(model, np.zeros((3, 13, 7, 1), np.uint8))
    assert (config.name, config.backend, list(config.input[0].dims)) == ("mine", "onnxruntime", [-1, -1, 1])
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    (labelled,) = [each for each in config.output if each.label_filename]
    assert labelled.name == "probabilities"
    assert (model / labelled.label_filename).read_text().splitlines() == [str(digit) for digit in range(10)]


def test_a_run_on_features_takes_rows_of_them(tmp_path: Path) -> None:
    folder = train_on_features(tmp_path / "run", feature_config(written(tmp_path)))
    export_to_triton(folder, tmp_path / "models")
    features = digit_features()[0][:5]
    config = check_served_as_the_config_says(tmp_path / "models" / "run", np.asarray(features))
    assert list(config.input[0].dims) == [features.shape[1]]


def test_a_second_export_is_the_next_version_and_changes_nothing_else(
    run: Path, repository: Path, tmp_path: Path
) -> None:
    models = Path(shutil.copytree(repository, tmp_path / "models"))
    (models / "other" / "7").mkdir(parents=True)
    (models / "other" / "7" / "model.plan").write_bytes(b"of somebody else")
    config = models / "mine" / "config.pbtxt"
    config.write_text(config.read_text() + "instance_group { count: 2 }\n")  # as its owner tunes it
    former = contents(models)
    printed = dsui("export", run, "--triton", models, "--json", "--quiet")
    told = json.loads(printed.stdout)
    assert (told["version"], told["file"]) == (2, str(models / "mine" / "2" / "model.onnx"))
    found = contents(models)
    assert found.pop("mine/2/model.onnx")
    assert found == former


def test_what_cannot_be_a_version_is_one_sentence_and_leaves_all_as_it_was(
    run: Path, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = Path(shutil.copytree(repository, tmp_path / "models"))
    (models / "foreign" / "1").mkdir(parents=True)
    (models / "foreign" / "1" / "model.onnx").write_bytes(b"\x08\x07")
    (models / "empty").mkdir()
    (models / "empty" / "config.pbtxt").touch()
    bare = own_copy(calibrated(), tmp_path / "bare")
    former = contents(models)
    for words, sentence in (
        (("--name", "mine"), "has other outputs"),
        (("--name", "foreign"), "was not written by dsui export"),
        (("--name", "empty"), "has no version"),
    ):
        assert exit_status("export", bare, "--triton", models, *words) == 1
        assert f"{models / words[1]} {sentence}, so this run cannot be a version of it" in capsys.readouterr().err
    assert exit_status("export", run, "--triton", tmp_path / "new", "--name", "../up") == 1
    assert capsys.readouterr().err.startswith("dsui: '../up' is no name for a model in Triton;")
    assert exit_status("export", run, "m.onnx", "--triton", models) == 2
    assert contents(models) == former
    assert not (tmp_path / "new").exists()


def test_an_export_that_fails_leaves_no_repository(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dsui.export.triton_repository._publish", full)
    with pytest.raises(OSError, match="No space"):
        export_to_triton(run, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_a_line_of_labels_is_one_class() -> None:
    assert labels_text(["a cat", "two\nlines"]) == "a cat\ntwo lines\n"
