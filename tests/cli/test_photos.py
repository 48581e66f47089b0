"""Photographs in a folder, with what `dsui train` chooses by itself, from training to prediction."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_sample_image
from typer.testing import CliRunner, Result

from dsui.backbones.preparation import Preparation
from dsui.cli import app, train_choices
from dsui.cli.errors import UsageError
from dsui.data.folder import SplitFiles, folder_set
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.runs.config import RunConfig
from dsui.runs.images import read_split
from dsui.runs.recipe_file import load_recipe

CPU = ["--device", "cpu", "--set", "epochs=1"]


def dsui(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], prog_name="dsui")


def works(*words: object) -> Result:
    result = dsui(*words)
    assert result.exit_code == 0, result.exception
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of 30 JPEG files of 96 x 72 pixels."""
    path = tmp_path_factory.mktemp("data") / "mine"
    for name in ("china", "flower"):
        (path / name).mkdir(parents=True)
        whole = Image.fromarray(load_sample_image(f"{name}.jpg"))
        for number in range(30):
            left, top = 18 * number, 11 * number
            whole.crop((left, top, left + 96, top + 72)).save(path / name / f"{number}.jpg")
    return path


def config(run: Path) -> RunConfig:
    return RunConfig.from_mapping(yaml.safe_load((run / "config.yaml").read_text()))


def test_a_folder_is_trained_on_as_photographs_and_says_what_was_chosen(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train = ["train", "--data", f"folder:{data}", *CPU, "--out", run]
    said = works(*train).stderr
    chosen = config(run)
    assert (chosen.recipe.name, chosen.backbone, chosen.size) == ("photos", "small", 64)
    assert (
        "The images become 64 x 64 pixels: the shorter sides of the files have a median of 72, and 64 are the most "
        "without a GPU; --size chooses another size." in said
    )
    batch = chosen.recipe.batch
    assert f"small starts from random weights and trains for 1 epoch in batches of {batch}." in said
    assert batch == 16  # half of the 48 training images are 24
    works(*train, "--resume", "--quiet")


def test_a_resumed_run_keeps_what_was_chosen_for_it(data: Path, tmp_path: Path) -> None:
    """Elsewhere another choice would be made: the run below is one that a GPU or an earlier version began."""
    run = tmp_path / "run"
    began = ["train", "--data", f"folder:{data}", "--device", "cpu", "--out", run, "--quiet"]
    short = ["--set", "epochs=1", "--set", "batch=8"]
    works(*began, "--size", "48", "--recipe", "demo", "--fit", "letterbox", *short)
    before = (run / "config.yaml").read_bytes()
    works(*began, *short, "--resume")
    assert (run / "config.yaml").read_bytes() == before
    assert "size: 48 there, 40 here" in str(dsui(*began, *short, "--size", "40", "--resume").exception)
    works(*began[:-3], "--out", tmp_path / "photos", "--quiet", *short)
    works(*began[:-3], "--out", tmp_path / "photos", "--quiet", "--resume")


def test_evaluation_and_prediction_see_the_images_as_training_did(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    works("train", "--data", f"folder:{data}", *CPU, "--fit", "letterbox", "--out", run, "--quiet")
    chosen = config(run)
    assert chosen.preparation is not None
    assert chosen.preparation["fit"] == "letterbox"
    way = Preparation(size=64, edge=64, fit="letterbox")
    expected = folder_set(data, "test", 64, 3, preparation=way)
    found = read_split(chosen, f"folder:{data}", "test", None)
    indices = range(len(expected.files))
    assert (found.read(expected.labels.new_tensor(list(indices))) == expected.in_memory().images).all()
    works("evaluate", run, "--tasks", "misclassification", "--quiet")
    out = tmp_path / "out.csv"
    works("predict", run, *expected.files, "--coverage", "0.5", "--out", out, "--quiet")
    labels = Predictor.load(run, "cpu").predict([Image.open(file) for file in expected.files]).label
    with out.open() as rows:
        assert [row["label"] for row in csv.DictReader(rows)] == labels.tolist()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data", "digits", "--fit", "crop"], "--fit crop is for folder:PATH; leave it out for digits."),
        (["--data", "folder:{data}", "--fit", "crap"], "did you mean crop?"),
        (["--data", "folder:{data}", "--set", "padding=4"], "padding is 4; it must be 0 where smallest_crop cuts out"),
        (["--data", "folder:{data}", "--set", "jitter=1"], "jitter is 1.0; it must be at least 0 and below 1."),
    ],
)
def test_what_does_not_go_together_is_one_sentence(data: Path, tmp_path: Path, words: list[str], sentence: str) -> None:
    refused = dsui("train", *(word.format(data=data) for word in words), "--device", "cpu", "--out", tmp_path / "run")
    assert isinstance(refused.exception, UsageError | DsuiError)
    assert sentence in str(refused.exception)
    assert not (tmp_path / "run").exists()


def test_images_too_small_for_the_backbone_leave_no_folder_not_even_those_above(data: Path, tmp_path: Path) -> None:
    options = ["--backbone", "vgg16", "--size", "16", *CPU]
    refused = dsui("train", "--data", f"folder:{data}", *options, "--out", tmp_path / "runs" / "mine")
    assert refused.exit_code == 1
    assert "vgg16 needs images of at least 32x32 pixels" in str(refused.exception)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("count", "size", "device", "backbone", "epochs", "batch"),
    [
        (10, 64, "cpu", "small", 100, 4),
        (320, 64, "cpu", "small", 100, 32),
        (4_000, 64, "cpu", "small", 50, 128),
        (4_000, 32, "cpu", "small", 100, 128),
        (100_000, 64, "cpu", "small", 20, 128),
        (320, 224, "cpu", "timm:resnet50", 5, 32),
        (320, 224, "cuda", "timm:resnet50", 20, 32),
        (5_000, 224, "cuda", "resnet18", 100, 128),
        (20_000, 224, "cuda", "resnet18", 50, 128),
        (1_000_000, 224, "cuda", "resnet18", 30, 128),
    ],
)
def test_epochs_and_batch_fit_the_machine_and_the_number_of_images(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int, device: str, backbone: str, epochs: int, batch: int
) -> None:
    files = {"a": [Path("a.jpg")] * (count // 2), "b": [Path("b.jpg")] * (count - count // 2)}
    monkeypatch.setattr("dsui.data.folder.split_files", lambda *_: SplitFiles(Path("x"), ("a", "b"), files, 0))
    chosen = train_choices.choose("folder:x", backbone, "photos", size, device, None)
    assert chosen.settings == {"epochs": str(epochs), "batch": str(batch)}
    assert load_recipe("photos", "folder:x", chosen.settings).epochs == epochs
