"""Networks of other libraries and of one's own on the command line: every command works on their runs."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import Result

from dsui import UncertaintyClassifier
from dsui.backbones import spec as specs
from dsui.data.feature_file import read_feature_file
from dsui.errors import DsuiError
from tests.support.command_line import dsui, exit_status
from tests.support.tiny_networks import own_module, photos, tiny_vit

QUICK = ["--recipe", "demo", "--set", "epochs=1", "--set", "batch=12", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, vit, and features.safetensors of the first by the second."""
    folder = tmp_path_factory.mktemp("named")
    photos(folder)
    tiny_vit(folder)
    result = embed(folder, "--out", folder / "features.safetensors", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["images"], facts["features"], facts["resumed_from"]) == (51, 16, 0)
    return folder


@pytest.fixture(autouse=True)
def _little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of 10,000 images, which take the networks here most of the time."""
    monkeypatch.setattr("dsui.evaluation.sources.NOISE_IMAGES", 100)


def embed(folder: Path, *words: object) -> Result:
    return dsui("embed", "--backbone", f"hf:{folder / 'vit'}", "--data", f"folder:{folder / 'photos'}", *words)


def train(folder: Path, out: Path, *words: object) -> Result:
    data = f"folder:{folder / 'photos'}"
    return dsui("train", "--data", data, "--calibration", "0.4", "--out", out, *words)


def check_every_command(folder: Path, run: Path, *words: object) -> None:
    """evaluate, threshold, predict, report and compare end well on a run; `words` go to those that load its network."""
    images = folder / "photos" / "test"
    for command in (
        ["evaluate", run, "--tasks", "misclassification,noise", "--quiet", *words],
        ["threshold", run, "--coverage", "0.9", "--risk", "", "--save", "--quiet", *words],
        ["report", run, "--out", run / "page.html", "--quiet", *words],
        ["compare", run],
    ):
        result = dsui(*command)
        assert result.exit_code == 0, (command, result.output, result.exception)
    result = dsui("predict", run, images, "--quiet", *words)
    assert result.exit_code == 0, (result.output, result.exception)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 15
    assert {row["decision"] for row in rows} <= {"accept", "reject"}


def test_every_command_takes_a_run_on_a_frozen_network_by_name(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(place, run, "--backbone", f"hf:{place / 'vit'}", "--freeze", "--set", "epochs=2")
    assert result.exit_code == 0, (result.output, result.exception)
    check_every_command(place, run)


@pytest.mark.parametrize(
    "words", [["--freeze-until", "layers.2"], ["--set", "layer_decay=0.5"]], ids=["partly", "decayed"]
)
def test_a_fine_tuned_run_is_evaluated_and_predicts(place: Path, tmp_path: Path, words: list[str]) -> None:
    run = tmp_path / "run"
    result = train(place, run, "--backbone", f"hf:{place / 'vit'}", *QUICK, *words)
    assert result.exit_code == 0, (result.output, result.exception)
    result = dsui("evaluate", run, "--tasks", "misclassification", "--quiet")
    assert result.exit_code == 0, (result.output, result.exception)
    assert len(dsui("predict", run, place / "photos" / "test", "--quiet").stdout.splitlines()) == 16


def test_every_command_takes_a_run_on_features_and_predict_takes_its_images(place: Path, tmp_path: Path) -> None:
    run, features = tmp_path / "run", place / "features.safetensors"
    words = ["--data", f"features:{features}", "--set", "epochs=3", "--calibration", "0.4"]
    result = dsui("train", *words, "--out", run, "--quiet")
    assert result.exit_code == 0, result.output
    check_every_command(place, run)
    of_images = dsui("predict", run, place / "photos" / "test", "--quiet").stdout
    of_features = dsui("predict", run, features, "--quiet").stdout
    names = read_feature_file(features).names
    assert names is not None
    first = {row["file"].rpartition("photos/")[2]: row for row in csv.DictReader(io.StringIO(of_images))}
    second = {row["file"]: row for row in csv.DictReader(io.StringIO(of_features))}
    assert set(second) == set(names)
    for name, row in first.items():
        assert row["label"] == second[name]["label"]
        # batches of another size sum in another order
        assert float(row["uncertainty"]) == pytest.approx(float(second[name]["uncertainty"]), abs=1e-3)


def test_foreign_images_of_a_run_on_features_are_embedded_by_the_network_that_it_knows(
    place: Path, tmp_path: Path
) -> None:
    run, others = tmp_path / "run", tmp_path / "others"
    shutil.copytree(place / "photos" / "test" / "red", others)
    data = f"features:{place / 'features.safetensors'}"
    assert dsui("train", "--data", data, "--set", "epochs=2", "--out", run, "--quiet").exit_code == 0
    written = tmp_path / "others.safetensors"
    result = dsui("embed", "--backbone", f"hf:{place / 'vit'}", "--data", f"folder:{others}", "--out", written)
    assert result.exit_code == 0, result.output
    foreign = f"folder:{others},features:{written},digits"
    result = dsui("evaluate", run, "--tasks", "ood", "--foreign", foreign, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    found = {row["foreign"]: row["metrics"]["auroc"] for row in rows if row["score"] == "uncertainty"}
    assert found[f"folder:{others}"] == found[f"features:{written}"]
    assert "digits" in found


def test_frozen_training_is_training_on_embedded_features(place: Path, tmp_path: Path) -> None:
    """The same images are for test and held out, and a step is the same step."""
    words = ["--set", "epochs=3", "--set", "batch=12", "--calibration", "0.4", "--quiet", "--json"]
    frozen = train(place, tmp_path / "a", "--backbone", f"hf:{place / 'vit'}", "--freeze", *words)
    data = f"features:{place / 'features.safetensors'}"
    plain = dsui("train", "--data", data, "--out", tmp_path / "b", *words)
    ours, theirs = json.loads(frozen.stdout), json.loads(plain.stdout)
    assert (ours["recipe"], theirs["recipe"]) == ("features", "features")
    assert ours["figures"]["loss"] == pytest.approx(theirs["figures"]["loss"], rel=1e-3)
    assert ours["held_out"] == theirs["held_out"]


def test_a_run_from_python_on_a_module_is_read_when_its_function_is_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(specs, "_allowed", {})
    name = own_module(tmp_path)
    network = __import__(name).net()
    settings = {"batch": 12}
    classifier = UncertaintyClassifier(network, recipe="demo", settings=settings, size=24, calibration=0.4)
    classifier.fit(place / "photos", epochs=1).save(tmp_path / "run")
    result = dsui("evaluate", tmp_path / "run", "--tasks", "misclassification", "--quiet")
    assert "name the function that makes it, as in --backbone package.module:function" in str(result.exception)
    check_every_command(place, tmp_path / "run", "--backbone", f"{name}:net")


def test_python_takes_the_same_names(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    classifier = UncertaintyClassifier(f"hf:{place / 'vit'}", recipe="demo", settings={"batch": 12})
    classifier.fit(str(place / "photos"), epochs=1).save(tmp_path / "run")
    accuracy = classifier.score(str(place / "photos"))
    assert UncertaintyClassifier.load(tmp_path / "run").score(str(place / "photos")) == accuracy
    result = dsui("evaluate", tmp_path / "run", "--tasks", "misclassification", "--quiet", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[0])["metrics"]["accuracy"] == pytest.approx(accuracy)
    with pytest.raises(ValueError, match="the images have 8x8 pixels and the model takes 32x32"):
        classifier.fit(np.zeros((30, 8, 8, 3), np.uint8), np.arange(30) % 2)
    with pytest.raises(DsuiError, match=r'weights="x\.safetensors": small starts anew'):
        UncertaintyClassifier("small", weights="x.safetensors").fit(place / "photos")


def bad_files(folder: Path) -> None:
    """Files of features, and weights, that cannot be used."""
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(40, 16)).astype(np.float32), np.arange(40) % 4
    broken = features.copy()
    broken[3, 4] = np.nan
    np.savez(folder / "nan.npz", features=broken, labels=labels)
    np.savez(folder / "width.npz", features=features[:, :7], labels=labels)
    np.savez(folder / "bare.npz", features=features)
    np.savez(folder / "twice.npz", features=features, labels=labels, names=np.array(["a"] * 40))
    np.savez(folder / "lacks.npz", features=features, labels=labels, split=np.where(labels == 3, "test", "train"))
    np.savez(folder / "one.npz", features=features, labels=labels * 0)
    save_file({"a": torch.zeros(2)}, folder / "wrong.safetensors")
    torch.save({"a": torch.zeros(2)}, folder / "pickle.pt")


@pytest.mark.parametrize(
    ("words", "sentence", "status"),
    [
        ("train --data features:nan.npz --out never", "1 of 40 rows hold NaN or infinity, row 3 first", 1),
        ("train --data features:bare.npz --out never", "holds no `labels`, which training and evaluation need", 1),
        ("train --data features:twice.npz --out never", "'a' occurs twice among its names", 1),
        ("train --data features:lacks.npz --out never", "class 3 has rows for test and none for training", 1),
        ("train --data features:one.npz --out never", "has one class, 0; a classifier needs two or more", 1),
        ("train --data features:gone.npz --out never", "is missing; write it with `dsui embed`", 1),
        ("train --data folder:photos --backbone hf:vit --weights wrong.safetensors --out never", "not those of hf", 1),
        ("train --data folder:photos --backbone hf:vit --weights pickle.pt --out never", "is a pickle by its name", 1),
        (
            "train --data folder:photos --backbone hf:vit --freeze-until layer9 --set batch=8 --out never",
            "it has layers.0, la",
            1,
        ),
        ("train --data folder:photos --backbone hf:vit --freeze --freeze-until x --out never", "choose one", 2),
        ("train --data folder:photos --backbone small --freeze --out never", "starts with random weights", 2),
        ("train --data folder:photos --backbone small --weights wrong.safetensors --out never", "starts anew", 2),
        ("train --data digits --backbone hf:vit --out never", "is for photographs in folder:PATH", 2),
        ("train --data folder:photos --backbone OWN:soft --out never", "gives probabilities, which sum to one", 1),
        ("train --data folder:photos --backbone OWN:votes --out never", "as many as the data has classes", 1),
        ("embed --data folder:photos --backbone OWN:votes --out never.safetensors", "as many as the data has", 1),
        ("embed --data folder:photos --backbone OWN:boom --out never.safetensors", "boom fails (RuntimeError", 1),
        ("train --data folder:photos --backbone hf:gone/or/not --out never", "correct the name or the folder", 1),
        ("embed --data folder:photos --backbone hf:vit --out never.npz", "must end in .safetensors", 1),
        ("embed --data folder:gone --backbone hf:vit --out never.safetensors", "gone is missing", 1),
        ("embed --data features:one.npz --backbone hf:vit --out never.safetensors", "are features already", 1),
        ("embed --data folder:photos --backbone OWN:soft --out never.safetensors", "gives probabilities", 1),
        ("embed --data folder:photos --backbone OWN:text --out never.safetensors", "return a torch.nn.Module", 1),
        ("embed --data folder:photos --backbone hf:vit --out photos/train/n.safetensors", "lies among the images", 2),
        ("predict run width.npz", "has 7 features in a row and the model takes 16", 1),
        ("predict run photos --backbone hf:vit", "the run knows this itself; leave it out", 2),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_leaves_nothing(
    words: str,
    sentence: str,
    status: int,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for each in ("photos", "vit"):
        (tmp_path / each).symlink_to(place / each)
    bad_files(tmp_path)
    name = own_module(tmp_path)
    if words.startswith("predict"):
        data = f"features:{place / 'features.safetensors'}"
        assert dsui("train", "--data", data, "--set", "epochs=1", "--out", "run", "--quiet").exit_code == 0
    before = sorted(os.listdir(tmp_path))
    capfd.readouterr()
    assert exit_status(*words.replace("OWN", name).split()) == status
    printed = " ".join(capfd.readouterr().err.split())
    assert sentence in printed
    assert "Traceback" not in printed
    assert sorted(set(os.listdir(tmp_path)) - {"__pycache__"}) == before


def test_a_file_that_exists_is_not_written_over(place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "features.safetensors", tmp_path / "a.safetensors")
    result = embed(place, "--out", tmp_path / "a.safetensors")
    assert "exists; remove it or choose another --out" in str(result.exception)
    assert (tmp_path / "a.safetensors").read_bytes() == (place / "features.safetensors").read_bytes()
