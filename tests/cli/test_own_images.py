"""folder:PATH from the check to the report: folders nobody has split, files that cannot be read, foreign folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from dsui.cli import app
from dsui.cli.errors import UsageError
from dsui.data.dataset import Subset
from dsui.data.folder import folder_set
from dsui.data.registry import load
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.evaluation.results import read
from dsui.report.figures import embedding
from dsui.runs.config import RunConfig
from dsui.runs.images import held_out_images
from dsui.runs.recipe_file import load_recipe

TRAIN = ["train", "--backbone", "small", "--recipe", "demo", "--method", "msp", "--set", "epochs=2", "--device", "cpu"]
SHAPE = ["--size", "8", "--channels", "1", "--set", "batch=40"]
MISSED = ["--tasks", "misclassification"]


def dsui(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], prog_name="dsui")


def works(*words: object) -> Result:
    result = dsui(*words)
    assert result.exit_code == 0, result.exception
    return result


def digits_in_files(path: Path) -> Path:
    """Three classes of digits as PNG files, split by nobody."""
    images = load("digits", "train")
    for label in range(3):
        (path / f"digit {label}").mkdir(parents=True)
        for place in (images.labels == label).nonzero().flatten()[:60]:
            Image.fromarray(images.read(place.view(1))[0, 0].numpy()).save(path / f"digit {label}" / f"{place}.png")
    return path


def test_a_folder_nobody_has_split_is_checked_trained_on_and_evaluated(tmp_path: Path) -> None:
    data, run = digits_in_files(tmp_path / "mine"), tmp_path / "run"
    aside = len(folder_set(data, "test").files)
    checked = json.loads(works("data", "check", f"folder:{data}", "--json").stdout)
    assert [split["images"] for split in checked["splits"]] == [180 - aside, aside]
    trained = works(*TRAIN, *SHAPE, "--data", f"folder:{data}", "--out", run)
    notes = [line for line in trained.stderr.splitlines() if "set aside" in line]
    assert notes == [f"{aside} of 180 images of folder:{data} are set aside for test."]
    calibration = Predictor.load(run, "cpu").calibration
    share = 1 - calibration.errors.double().mean().item()
    assert f"Trained; {share:.1%} of {len(calibration.errors)} held-out images are right; " in trained.stdout
    works("evaluate", run, *MISSED, "--quiet")
    rows, _ = read([run / "results.jsonl"])
    assert {(row.n_positive or 0) + (row.n_negative or 0) for row in rows if row.task == "misclassification"} == {aside}


def test_what_training_left_out_is_left_out_ever_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "POINTS", 40)
    data, run = digits_in_files(tmp_path / "mine"), tmp_path / "run"
    for split in ("train", "test"):
        file = folder_set(data, split).files[0]
        file.write_bytes(file.read_bytes()[:60])
    train = [*TRAIN, *SHAPE, "--data", f"folder:{data}", "--out", run, "--quiet"]
    assert "--skip-bad" in str(dsui(*train).exception)
    works(*train, "--skip-bad")
    works("evaluate", run, *MISSED, "--detectors", "knn", "--quiet")
    works("report", run, "--out", tmp_path / "report.html", "--quiet")
    works(*train, "--skip-bad", "--resume")


def test_foreign_images_may_lie_in_any_folder(tmp_path: Path) -> None:
    data, run = digits_in_files(tmp_path / "mine"), tmp_path / "run"
    for name in ("1.png", "deep/er/2.png"):
        (tmp_path / "others" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((20, 20), 50).save(tmp_path / "others" / name)
    works(*TRAIN, *SHAPE, "--data", f"folder:{data}", "--out", run, "--quiet")
    works("evaluate", run, "--tasks", "ood", "--foreign", f"folder:{tmp_path / 'others'}", "--quiet")
    rows, _ = read([run / "results.jsonl"])
    assert {row.n_positive for row in rows if row.task == "ood"} == {2}


@pytest.mark.parametrize("name", ["./photos", "photos2"])
@pytest.mark.parametrize(
    "command",
    [
        ["data", "check"],
        ["train", "--out", "run", "--data"],
        ["train", "--out", "run", "--data", "digits", "--outliers"],
        ["evaluate", "run", "--foreign"],
        ["report", "run", "--foreign"],
    ],
    ids=" ".join,
)
def test_a_folder_is_named_with_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "did you mean photos?" in str(dsui(*command, name).exception)
    (tmp_path / name).mkdir()
    assert (
        str(dsui(*command, name).exception) == f"no data set {name!r}; for the folder of that name write folder:{name}."
    )


def test_a_folder_called_like_a_set_that_cannot_train_is_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for words in ([*TRAIN, "--data", "photos"], [*TRAIN, "--data", "digits", "--outliers", "photos"]):
        result = dsui(*words, "--out", "run", "--quiet")
        assert isinstance(result.exception, DsuiError)
        assert str(result.exception).endswith("or folder:photos for the folder of that name.")


def test_held_out_images_are_not_guessed_once_the_folder_has_changed(tmp_path: Path) -> None:
    data, run = digits_in_files(tmp_path / "mine"), tmp_path / "run"
    train = [*TRAIN, *SHAPE, "--data", f"folder:{data}", "--out", run, "--quiet"]
    works(*train, "--calibration", "0.3")
    held_out = ["evaluate", run, *MISSED, "--on", "held-out", "--quiet"]
    works(*held_out)
    first = folder_set(data, "train").files[0]
    copy = next(name for number in range(99) if (name := _more(first, number)) in folder_set(data, "train").files)
    assert "it is unknown which it held out" in str(dsui(*held_out).exception)
    copy.unlink()
    works(*held_out)
    first.write_bytes(first.read_bytes() + b"0")  # another content under the same name
    assert "are not those this run was begun with" in str(dsui(*train, "--calibration", "0.3", "--resume").exception)


def _more(file: Path, number: int) -> Path:
    """A copy of the file under another name, which may be for training or for test."""
    copy = file.with_name(f"copy {number}.png")
    copy.write_bytes(file.read_bytes())
    return copy


def test_a_held_out_file_that_cannot_be_read_is_told_before_training(tmp_path: Path) -> None:
    data, run = digits_in_files(tmp_path / "mine"), tmp_path / "run"
    train = [*TRAIN, *SHAPE, "--data", f"folder:{data}", "--calibration", "0.3", "--out", run]
    whole = folder_set(data, "train", 8, 1)
    config = RunConfig(
        data=f"folder:{data}",
        backbone="small",
        method="msp",
        seed=0,
        size=8,
        channels=1,
        recipe=load_recipe("demo", "digits"),
        held_out=0.3,
    )
    held_out = held_out_images(config, whole)
    assert isinstance(held_out, Subset)
    file = whole.files[int(held_out.indices[0])]
    file.write_bytes(file.read_bytes()[:60])
    result = dsui(*train)
    assert f"{file} cannot be used" in str(result.exception)
    assert "epoch 1/2" not in result.stderr
    assert "epoch 1/2" in works(*train, "--skip-bad").stderr


def split_by_hand(path: Path) -> Path:
    """The same digits in train and test."""
    whole = digits_in_files(path)
    (path / "train").mkdir()
    for folder in [entry for entry in whole.iterdir() if entry.name != "train"]:
        folder.rename(path / "train" / folder.name)
        (path / "test" / folder.name).mkdir(parents=True)
        for file in sorted((path / "train" / folder.name).iterdir())[:20]:
            file.rename(path / "test" / folder.name / file.name)
    return path


def test_a_run_among_the_images_would_be_a_class_and_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, split = digits_in_files(tmp_path / "whole"), split_by_hand(tmp_path / "split")
    monkeypatch.chdir(tmp_path)
    for data, out in (
        (whole, whole / "runs" / "a"),
        (whole, Path("whole/../whole/run")),
        (split, split / "test" / "run"),
    ):
        result = dsui(*TRAIN, *SHAPE, "--data", f"folder:{data}", "--out", out)
        assert isinstance(result.exception, UsageError)
        assert f"--out {out} lies among the images of folder:{data}; choose a folder outside" in str(result.exception)
        assert not out.exists()
    outliers = dsui(*TRAIN, "--data", "digits", "--outliers", f"folder:{whole}", "--out", whole / "run").exception
    assert f"--out {whole / 'run'} lies among the images of folder:{whole}" in str(outliers)
    works(*TRAIN, *SHAPE, "--data", f"folder:{split}", "--out", split / "runs")
    works("evaluate", split / "runs", *MISSED, "--quiet")


def test_a_class_that_only_test_images_have_is_told_before_training(tmp_path: Path) -> None:
    data = split_by_hand(tmp_path / "mine")
    (data / "test" / "digit 9").mkdir()
    result = dsui(*TRAIN, *SHAPE, "--data", f"folder:{data}", "--out", tmp_path / "run")
    assert "digit 9 has no counterpart in" in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_training_images_alone_are_trained_on_and_what_is_left_to_evaluate_is_said(tmp_path: Path) -> None:
    data, run = split_by_hand(tmp_path / "mine"), tmp_path / "run"
    shutil.rmtree(data / "test")
    train = [*TRAIN, *SHAPE, "--data", f"folder:{data}"]
    trained = works(*train, "--out", run)
    assert f"folder:{data} has no folder test, so `dsui evaluate` needs --on held-out." in trained.stderr
    assert f"Next: dsui evaluate {run} --on held-out" in trained.stdout
    works("evaluate", run, *MISSED, "--on", "held-out", "--quiet")
    trained = works(*train, "--calibration", "0", "--out", tmp_path / "other")
    assert "so there are no images to evaluate it with" in trained.stderr
    assert f"Next: dsui predict {tmp_path / 'other'} IMAGES" in trained.stdout


def test_few_steps_in_an_epoch_are_told_of(tmp_path: Path) -> None:
    data = digits_in_files(tmp_path / "mine")
    note = "images make only 2 steps of 40 an epoch; --set batch=10 makes more steps."
    trained = works(*TRAIN, *SHAPE, "--data", f"folder:{data}", "--calibration", "0.3", "--out", tmp_path / "a")
    assert note in trained.stderr
    quick = [*TRAIN, *SHAPE, "--data", f"folder:{data}", "--set", "batch=8", "--out", tmp_path / "b"]
    assert "an epoch; --set" not in works(*quick).stderr


def test_uneven_classes_and_files_that_are_passed_over_are_told_of_before_training(tmp_path: Path) -> None:
    data = digits_in_files(tmp_path / "mine")
    for file in sorted((data / "digit 2").iterdir())[12:]:
        file.unlink()
    shutil.copytree(data / "digit 0", data / "digit 0" / "copies")
    train = [*TRAIN, *SHAPE, "--data", f"folder:{data}", "--calibration", "0", "--out"]
    told = works(*train, tmp_path / "a").stderr
    assert "Classes are uneven: digit 2 has " in told
    assert f"60 files are passed over; `dsui data check folder:{data}` names them and says why." in told
    assert "Classes are uneven" not in works(*train, tmp_path / "b", "--balance", "logits").stderr
    few = [*train, tmp_path / "c", "--method", "dsui", "--set", "initialize=true", "--set", "density_warm_up=1"]
    assert (
        "Class digit 2 has fewer than 16 images, too few for 8 components"
        in works(*few, "--set", "components=8").stderr
    )


def test_images_that_are_not_where_they_were_are_told_of_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits_in_files(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    works(*TRAIN, *SHAPE, "--data", "folder:mine", "--out", tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    why = str(dsui("evaluate", tmp_path / "run", *MISSED).exception)
    assert why.startswith(f"mine is missing below {tmp_path / 'elsewhere'}; it holds the images of this run")
    assert "work where `dsui train` was called" in why


def test_a_file_in_the_place_of_a_folder_is_called_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DsuiError, match="file is not a folder; own images lie in"):
        folder_set(tmp_path / "file", "train")


def test_images_too_small_for_the_backbone_are_refused_and_leave_no_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    refused = dsui(
        "train", "--data", "digits", "--backbone", "vgg16", "--recipe", "demo", "--device", "cpu", "--out", run
    )
    assert refused.exit_code == 1
    assert "vgg16 needs images of at least 32x32 pixels and those of digits have 8x8; choose" in str(refused.exception)
    assert not run.exists()


def test_a_folder_of_one_class_is_told_so_before_anything_else(tmp_path: Path) -> None:
    data = digits_in_files(tmp_path / "mine")
    for label in (1, 2):
        shutil.rmtree(data / f"digit {label}")
    refused = dsui(*TRAIN, "--data", f"folder:{data}", "--out", tmp_path / "run")
    assert "has one class, digit 0; a classifier needs two or more" in str(refused.exception)
    assert not (tmp_path / "run").exists()


def test_a_class_that_training_lacks_is_named_by_every_command_that_reads_test(tmp_path: Path) -> None:
    data = digits_in_files(tmp_path / "mine")
    (data / "train").mkdir()
    for label in range(3):
        (data / f"digit {label}").rename(data / "train" / f"digit {label}")
    shutil.copytree(data / "train" / "digit 0", data / "test" / "digit 7")
    sentence = "digit 7 has no counterpart in .*; add training images or remove it"
    for words in ([*TRAIN, "--data", f"folder:{data}", "--out", tmp_path / "run"], ["data", "check", f"folder:{data}"]):
        with pytest.raises(DsuiError, match=sentence):
            raise dsui(*words).exception or AssertionError
    assert not (tmp_path / "run").exists()
