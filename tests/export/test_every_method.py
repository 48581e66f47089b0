"""Every method of the registry: one that predicts without drawing exports, and says what the run says; the others say
why not. Agreement with the run is what `export_run` checks before it writes; here its limits are tightened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.export.description import describe
from dsui.export.onnx_session import Session
from dsui.export.run_export import export_run
from dsui.families import registry as families
from dsui.methods.doubles import Doubles
from dsui.methods.dsui import DualSupervised
from dsui.methods.registry import build, find, names
from dsui.runs.recipe_file import load_recipe
from dsui.runtime.facts import KEY
from tests.families.test_heads_of_families import settings_of
from tests.support.digit_runs import own_copy, run

OPTIONS: dict[str, dict[str, object]] = {
    "ensemble": {"members": 2},
    "mc-dropout": {"neck": True, "dropout": 0.2, "samples": 2},
    "bbb": {"samples": 2},
}
DRAWING = [name for name in names() if find(name).draws]
FIXED = [name for name in names() if not find(name).draws]
OWN_SCORES = {
    "dpn": "mutual_information",
    "rkl": "differential_entropy",
    "rotpred": "rotpred",
    "logitnorm": "normalized",
}
"""A score of the method's own for the threshold, which reads what other outputs do not."""


def trained(method: str) -> Path:
    return run(method, held_out=0.2, epochs=1, **OPTIONS.get(method, {}))


def metadata(file: Path) -> dict[str, Any]:
    (found,) = [each.value for each in onnx.load(file).metadata_props if each.key == KEY]
    values: dict[str, Any] = json.loads(found)
    return values


@pytest.mark.parametrize("method", FIXED)
def test_a_method_without_draws_exports_and_agrees(method: str, tmp_path: Path) -> None:
    folder = own_copy(trained(method), tmp_path / "run")
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9, score=OWN_SCORES.get(method))
    predictor.save_threshold()
    exported = export_run(folder, tmp_path / "model.onnx")
    assert exported.agreement.probability < 1e-5  # 3e-6 at most when written; the limit is 1e-4
    assert exported.images == "200 held-out images"
    session, facts = Session((tmp_path / "model.onnx").read_bytes()), metadata(tmp_path / "model.onnx")
    assert list(session.outputs) == facts["outputs"]
    images = load("digits", "test").read(torch.arange(5))
    wanted, found = predictor.predict(images), session(images.permute(0, 2, 3, 1).numpy())
    assert [facts["classes"][label] for label in found["label"]] == wanted.label.tolist()
    assert wanted.abnormal is not None
    assert (~found["accepted"]).tolist() == wanted.abnormal.tolist()
    np.testing.assert_allclose(found["probabilities"], wanted.probabilities, atol=1e-5)
    np.testing.assert_allclose(found["uncertainty"], wanted.uncertainty, rtol=1e-4, atol=1e-5)
    assert ("log_density" in found) == (wanted.log_density is not None)


@pytest.mark.parametrize("method", DRAWING)
def test_a_method_that_draws_says_why_it_does_not_export(method: str, tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match=f"{method} draws random numbers for every prediction"):
        export_run(trained(method), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_methods_that_draw_are_those_that_sample() -> None:
    assert DRAWING == ["mc-dropout", "bbb", "sde-net"]


def test_an_ensemble_draws_where_a_member_does() -> None:
    recipe = load_recipe("demo", "digits")
    assert build("ensemble", "small", 1, 3, recipe, {"members": 2, "member": "sde-net"}).draws
    assert not build("ensemble", "small", 1, 3, recipe, {"members": 2}).draws


@pytest.mark.parametrize("score", [None, "turned_evidence"])
def test_of_doubles_only_the_upright_rows_are_exported_unless_a_threshold_reads_the_others(
    score: str | None, tmp_path: Path
) -> None:
    folder = own_copy(run("dsui", held_out=0.2, epochs=1, doubles="turns"), tmp_path / "run")
    predictor = Predictor.load(folder, "cpu")
    predictor.threshold(0.9, score=score, two=score is None)
    predictor.save_threshold()
    export_run(folder, tmp_path / "model.onnx")
    stored = {tuple(each.dims) for each in onnx.load(tmp_path / "model.onnx").graph.initializer}
    doubles = predictor.model.method
    assert isinstance(doubles, Doubles)
    assert isinstance(doubles.method, DualSupervised)
    head = doubles.method.head
    of_classes = 10 * head.components  # columns of the product with (z^2, z)
    assert ((2 * head.in_features, of_classes) in stored) == (score is None)
    assert ((2 * head.in_features, 4 * of_classes) in stored) == (score is not None)


@pytest.mark.parametrize("family", [name for name in families.names() if name != "gaussian"])
def test_every_family_exports_also_with_doubles_and_a_density_of_lengths(family: str, tmp_path: Path) -> None:
    options = {**settings_of(family), "doubles": "turns", "length": "density"}
    exported = export_run(run("dsui", held_out=0.2, epochs=1, **options), tmp_path / "model.onnx")
    assert exported.agreement.probability < 1e-5
    assert exported.agreement.relative["log_density"] < 1e-5


def test_the_released_layer_exports(tmp_path: Path) -> None:
    folder = run("dsui", held_out=0.2, epochs=1, head="released", objective="released")
    assert export_run(folder, tmp_path / "model.onnx").agreement.relative["log_density"] < 1e-5


def test_the_metadata_are_those_of_the_contract(tmp_path: Path) -> None:
    folder = own_copy(trained("dsui"), tmp_path / "run")
    predictor = Predictor.load(folder, "cpu")
    chosen = predictor.threshold(risk=0.3, two=True)
    facts = describe(predictor, "mine", "images", ("label",), "digest")
    assert facts["thresholds"] == {
        "limits": [limit._asdict() for limit in chosen.limits],
        "asked": {"coverage": None, "risk": 0.3},
        "coverage": chosen.coverage,
        "risk": chosen.risk,
        "images": 200,
    }
    assert "at most 0.3 of the accepted images" in str(facts["promise"])
    calibration: Any = facts["calibration"]
    assert (calibration["images"], len(calibration["uncertainty"]), len(calibration["foreignness"])) == (200, 101, 101)
    assert calibration["uncertainty"][0] == predictor.calibration.uncertainties[0]
    assert calibration["uncertainty"][50] == predictor.calibration.uncertainties[99]  # the 100th of 200 images
    assert (facts["name"], facts["weights"], facts["size"], facts["channels"]) == ("mine", "digest", 8, 1)
    assert facts["verdict"] is None
    assert len(json.dumps(facts)) > 0
