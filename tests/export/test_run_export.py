"""The command and the function: what is written, when nothing is, and what fewer bits change."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.export import agreement, run_export
from dsui.export.assembly import prepended
from dsui.export.onnx_session import Session
from dsui.export.run_export import Exported, export_run
from dsui.runtime.facts import CHECKS
from tests.support import digit_runs
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import calibrated, own_copy
from tests.support.feature_files import digit_features, feature_config, written
from tests.support.feature_files import train as train_on_features
from tests.support.fences import ROOT, fences, run_python

ANOTHER = '<ir_version: 10, opset_import: ["" : 18]> other (float[N] x) => (float[N] y) { y = Identity (x) }'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DS-UI with two saved limits."""
    folder = own_copy(calibrated(), tmp_path_factory.mktemp("export") / "mine")
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9, two=True)
    predictor.save_threshold()
    return folder


@pytest.fixture(scope="module")
def whole(run: Path) -> Exported:
    """Its export in float32."""
    return export_run(run, run.parent / "whole.onnx")


def test_photographs_of_any_size_are_prepared_inside(run: Path, whole: Exported) -> None:
    session, predictor = Session(whole.file.read_bytes()), Predictor.load(run, "cpu")
    values = load("digits", "test").read(torch.arange(3))[:, 0].numpy()
    for digit in values:
        image = Image.fromarray(digit).resize((30, 21), Image.Resampling.BICUBIC)
        wanted = predictor.predict(image)
        found = session(np.asarray(image)[None, :, :, None])
        # at most one level of 255 in a few of 64 pixels
        np.testing.assert_allclose(found["probabilities"], wanted.probabilities, atol=0.01)
        assert found["label"][0] == predictor.classes.tolist().index(wanted.label[0])


def test_the_page_on_exported_files_reads_one(whole: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "export.md"
    shutil.copy(whole.file, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (fence,) = [each for each in fences(page) if each.language == "python"]
    run_python(page, fence, names)
    assert set(names["labels"]) <= set(names["facts"]["classes"])
    assert names["outputs"]["accepted"].shape == (2,)
    text = page.read_text(encoding="utf-8")
    assert not [name for name in (*whole.facts, *names["outputs"]) if f"`{name}`" not in text]


def test_a_graph_that_disagrees_is_not_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupted(model: onnx.ModelProto, *_: object) -> onnx.ModelProto:
        for weights in model.graph.initializer:
            if weights.name.endswith("layers.3.weight"):
                values = onnx.numpy_helper.to_array(weights) * np.float32(1.05)
                weights.CopyFrom(onnx.numpy_helper.from_array(values, weights.name))
        return prepended(model, predictor.form)

    predictor = Predictor.load(run, "cpu")
    monkeypatch.setattr(run_export, "_whole", corrupted)
    target = tmp_path / "model.onnx"
    target.write_bytes(b"the former file")
    with pytest.raises(DsuiError, match="the exported graph does not compute what the run computes"):
        export_run(run, target)
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    assert target.read_bytes() == b"the former file"


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_fewer_bits_leave_a_smaller_file_and_say_what_they_change(
    precision: Any, run: Path, whole: Exported, tmp_path: Path
) -> None:
    exported = export_run(run, tmp_path / "model.onnx", precision=precision)
    assert exported.bytes < 0.7 * whole.bytes  # the head, a quarter of this small run's numbers, stays as it is
    effects = exported.effects
    assert effects is not None
    assert (exported.facts["precision"], effects.reduced.precision, effects.images) == (precision, precision, 100)
    assert effects.reduced.accuracy == pytest.approx(effects.whole.accuracy, abs=0.03)
    assert effects.labels_changed <= 0.03  # nothing with fp16, 1 % with int8 when written
    assert effects.probability < (0.02 if precision == "fp16" else 0.3)
    model = onnx.load(exported.file)
    assert model.ir_version <= 10  # what ONNX Runtime 1.18 reads
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 18)]
    kinds = {each.data_type for each in model.graph.initializer if np.prod(each.dims) > 3000}
    assert onnx.TensorProto.DOUBLE in kinds  # the mixtures
    assert (onnx.TensorProto.FLOAT16 if precision == "fp16" else onnx.TensorProto.INT8) in kinds
    assert onnx.TensorProto.FLOAT not in kinds
    written = {each.key: each.value for each in onnx.load(exported.file).metadata_props}
    assert json.loads(written[CHECKS])["effects"]["labels_changed"] == effects.labels_changed


def test_int8_without_held_out_images_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="int8 needs held-out images"):
        export_run(digit_runs.run("msp", epochs=1), tmp_path / "model.onnx", precision="int8")
    assert list(tmp_path.iterdir()) == []


def test_without_held_out_images_noise_is_named(tmp_path: Path) -> None:
    exported = export_run(digit_runs.run("msp", epochs=1), tmp_path / "model.onnx")
    assert exported.images == "128 samples of noise, because the run held none out"


def test_a_run_on_features_takes_features(tmp_path: Path) -> None:
    folder = train_on_features(tmp_path / "run", feature_config(written(tmp_path)))
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9)
    predictor.save_threshold()
    exported = export_run(folder, tmp_path / "model.onnx")
    assert (exported.facts["input"], exported.facts["size"], exported.resizing) == ("features", 1, None)
    session, features = Session((tmp_path / "model.onnx").read_bytes()), digit_features()[0][600:620]
    wanted, found = predictor.predict(features), session(features)
    assert wanted.log_density is not None
    assert wanted.abnormal is not None
    np.testing.assert_allclose(found["log_density"], wanted.log_density, rtol=1e-6)
    assert (~found["accepted"]).tolist() == wanted.abnormal.tolist()
    result = dsui("predict", tmp_path / "model.onnx", written(tmp_path, slice(600, 620)), "--quiet")
    assert [
        row["decision"] == "reject" for row in csv.DictReader(io.StringIO(result.stdout))
    ] == wanted.abnormal.tolist()


def test_the_score_of_a_detector_of_plain_formulas_is_inside(tmp_path: Path) -> None:
    folder = own_copy(calibrated(), tmp_path / "run")
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9, detector="mahalanobis")
    predictor.save_threshold()
    exported = export_run(folder, tmp_path / "model.onnx")
    assert exported.agreement.relative["mahalanobis"] < 1e-4


def test_a_detector_without_such_a_formula_is_named(tmp_path: Path) -> None:
    folder = own_copy(calibrated(), tmp_path / "run")
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9, detector="knn")
    predictor.save_threshold()
    with pytest.raises(DsuiError, match="by the detector knn, whose score ONNX has no operations for"):
        export_run(folder, tmp_path / "model.onnx")


def test_the_command_says_what_it_wrote_and_what_info_tells_of_it(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    first = dsui("export", run, target, "--name", "photos")
    assert first.exit_code == 0, first.output
    assert "photos, 0." in first.stdout
    assert "ONNX Runtime agrees with the run on 200 held-out images" in " ".join(first.stdout.split())
    told = json.loads(dsui("info", target, "--json").stdout)
    assert (told["model"]["name"], told["model"]["method"]) == ("photos", "dsui")
    assert told["decision"]["accepts"].startswith("uncertainty up to ")
    assert told["checks"]["checked on"] == "200 held-out images"


def test_what_cannot_be_written_is_one_sentence_and_leaves_what_was_there(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "model.onnx"
    there.write_bytes(b"the former file")
    for target, sentence in (
        (there, f"{there} exists; add --force to replace it, or choose another name."),
        (tmp_path / "model.pt", f"{tmp_path}/model.pt must end in .onnx; choose such a name."),
        (
            tmp_path / "no" / "m.onnx",
            f"{tmp_path}/no is no folder to write m.onnx to; make it, or choose another.",
        ),
    ):
        assert exit_status("export", run, target) == 1
        assert capsys.readouterr() == ("", f"dsui: {sentence}\n")
    (tmp_path / "folder.onnx").mkdir()
    assert exit_status("export", run, tmp_path / "folder.onnx", "--force") == 1
    assert capsys.readouterr() == ("", f"dsui: {tmp_path}/folder.onnx is a folder; choose the name of a file.\n")
    (tmp_path / "folder.onnx").rmdir()
    for name in ("", "two\nlines", "n" * 101):  # the last could not be read back
        assert exit_status("export", run, there, "--force", "--name", name) == 1
        assert "is not one printable line of 1 to 100 characters; choose another." in capsys.readouterr().err
    assert exit_status("export", run, there, "--fp16", "--int8") == 2
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    assert there.read_bytes() == b"the former file"


def test_info_says_of_other_files_that_they_are_no_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    onnx.save(onnx.parser.parse_model(ANOTHER), tmp_path / "other.onnx")
    for name, reason in (
        ("text.onnx", "is no ONNX file"),
        ("other.onnx", "does not say what it predicts; name a file that `dsui export` wrote"),
        ("none.onnx", "; export one with `dsui export RUN"),
    ):
        assert exit_status("info", tmp_path / name) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert name in printed.err
        assert reason in printed.err


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_one_sentence(
    package: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_export, "find_spec", lambda name: None if name == package else object())
    assert exit_status("export", run, tmp_path / "model.onnx") == 1
    assert capsys.readouterr().err == f"dsui: exported files need {package}; run pip install 'dsui[export]'.\n"


def test_the_limits_are_those_the_issue_asks_for() -> None:
    assert (agreement.DECISIVE, agreement.PROBABILITY, agreement.LOG_DENSITY) == (1e-4, 1e-4, 1e-3)
