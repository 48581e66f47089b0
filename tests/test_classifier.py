"""The classifier as scikit-learn would use it, on the embedded digits."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import cross_val_score
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from typer.testing import CliRunner

from dsui import Prediction, Predictor, UncertaintyClassifier
from dsui.cli import app
from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.runs.weights import load_weights, read_metadata
from dsui.training.loop import InterruptedRun

TRAIN, TEST = (load("digits", split) for split in ("train", "test"))
IMAGES, LABELS = TRAIN.read(torch.arange(1000)).numpy()[:, 0], TRAIN.labels.numpy()
NEW, TRUTH = TEST.read(torch.arange(797)).numpy()[:, 0], TEST.labels.numpy()


def classifier(backbone: str | nn.Module = "small", epochs: int = 2, **chosen: Any) -> UncertaintyClassifier:
    chosen = {"recipe": "demo", "settings": {"epochs": epochs}, "device": "cpu"} | chosen
    return UncertaintyClassifier(backbone, **chosen)


@pytest.fixture(scope="module")
def fitted() -> UncertaintyClassifier:
    return classifier(num_classes=10).fit(IMAGES, LABELS)


def weights(of: UncertaintyClassifier) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = of.predictor_.model.method.state_dict()
    return state


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def digit_files(path: Path) -> Path:
    for split, images, labels in (("train", IMAGES, LABELS), ("test", NEW, TRUTH)):
        for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
            file = path / split / f"{label}" / f"{number:04}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
    return path


def test_it_learns_and_its_answers_agree(fitted: UncertaintyClassifier) -> None:
    said = fitted.predict(NEW)
    assert isinstance(said, Prediction)
    assert fitted.classes_.tolist() == list(range(10))
    assert fitted.n_features_in_ == 64
    assert fitted.score(NEW, TRUTH) == np.mean(said.label == TRUTH) == accuracy_score(TRUTH, said)
    assert fitted.score(NEW, TRUTH) > 0.85  # 0.931 when written
    assert np.array_equal(fitted.predict_proba(NEW), said.probabilities)
    assert said.abnormal is None


def test_it_is_what_dsui_train_trains_to_the_bit(fitted: UncertaintyClassifier, tmp_path: Path) -> None:
    words = ["--data", "digits", "--backbone", "small", "--recipe", "demo", "--set", "epochs=2", "--calibration", "0.1"]
    run = tmp_path / "run"
    trained = CliRunner().invoke(app, ["train", *words, "--device", "cpu", "--quiet", "--out", str(run)])
    assert trained.exit_code == 0
    of_command, metadata = load_weights(run / "model.safetensors")
    assert same_bits(weights(fitted), of_command)
    assert fitted.predictor_.calibration.to_text() == metadata["calibration"]
    read = UncertaintyClassifier.load(run, device="cpu")
    assert read.classes_.tolist() == list("0123456789")
    assert np.array_equal(read.predict_proba(NEW), fitted.predict_proba(NEW))


def test_arrays_tensors_and_loaders_are_the_same_to_it(fitted: UncertaintyClassifier) -> None:
    tensors = torch.from_numpy(IMAGES)[..., None] / 255, torch.from_numpy(LABELS)
    loader = DataLoader(TensorDataset(*tensors), batch_size=300)
    assert same_bits(weights(classifier().fit(*tensors)), weights(fitted))
    assert same_bits(weights(classifier().fit(loader)), weights(fitted))
    assert fitted.score(loader) == fitted.score(*tensors) == fitted.score(IMAGES, LABELS.tolist())
    assert np.array_equal(fitted.predict(loader).probabilities, fitted.predict(tensors[0]).probabilities)


def test_a_folder_trains_what_its_images_train_as_arrays(tmp_path: Path) -> None:
    folder = digit_files(tmp_path / "digits")
    order = np.argsort(LABELS, kind="stable")  # files are sorted by class
    of_arrays = classifier(epochs=1).fit(IMAGES[order], LABELS[order].astype(str))
    of_folder = classifier(epochs=1, size=8, channels=1).fit(folder)
    assert same_bits(weights(of_folder), weights(of_arrays))
    assert of_folder.classes_.tolist() == list("0123456789")
    assert of_folder.predictor_.model.facts.config.data == f"folder:{folder}"
    for data in (str(folder), f"folder:{folder}"):
        assert of_folder.score(data) == of_arrays.score(NEW, TRUTH.astype(str))


def test_labels_may_be_any_numbers_or_text_and_come_back_as_they_were() -> None:
    three = np.isin(LABELS, (2, 5, 9))
    for names in (
        np.array([0, 0, -7, 0, 0, 40, 0, 0, 0, 1000]),
        np.array(["", "", "cat", "", "", "ant", "", "", "", "bee"]),
    ):
        made = classifier(epochs=4).fit(IMAGES[three], names[LABELS[three]].tolist())
        assert made.classes_.tolist() == sorted(names[[2, 5, 9]].tolist())
        new = np.isin(TRUTH, (2, 5, 9))
        assert made.score(NEW[new], names[TRUTH[new]]) > 0.8  # 0.983 when written
        assert set(made.predict(NEW[new]).label.tolist()) == set(made.classes_.tolist())


def test_labels_of_another_kind_are_not_all_wrong_but_refused(fitted: UncertaintyClassifier) -> None:
    with pytest.raises(ValueError, match="none of the labels is a class of this model"):
        fitted.score(NEW[:5], ["zero"] * 5)


def test_scikit_learn_clones_and_cross_validates_it() -> None:
    own = classifier(num_classes=10, calibration=0.0, seed=3)
    copy = clone(own)
    assert is_classifier(own)
    assert copy.get_params() == own.get_params()
    assert copy.set_params(method="msp").method == "msp"
    assert own.method == "dsui"
    some = slice(0, 600)
    by_own = cross_val_score(own, IMAGES[some], LABELS[some], cv=2)
    by_name = cross_val_score(own, IMAGES[some], LABELS[some], cv=2, scoring="accuracy")
    assert by_own.tolist() == by_name.tolist()
    assert by_own.min() > 0.3  # 0.58 when written, after eight steps of training
    assert not hasattr(own, "predictor_")


def test_before_fit_everything_but_fit_is_refused(tmp_path: Path) -> None:
    fresh = classifier()
    for use in (
        lambda: fresh.predict(NEW),
        lambda: fresh.predict_proba(NEW),
        lambda: fresh.score(NEW, TRUTH),
        lambda: fresh.threshold(coverage=0.9),
        lambda: fresh.save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError):
            use()


def test_a_threshold_marks_what_to_distrust(fitted: UncertaintyClassifier) -> None:
    made = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    chosen = made.threshold(coverage=0.9)
    assert chosen.images == 100
    said = made.predict(NEW)
    assert said.abnormal is not None
    assert np.array_equal(said.abnormal, said.uncertainty > chosen.value)
    assert fitted.predict(NEW[:3]).abnormal is None


def test_saved_and_loaded_it_is_the_same_and_the_command_line_reads_it(
    fitted: UncertaintyClassifier, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    back = UncertaintyClassifier.load(tmp_path / "model", device="cpu")
    assert same_bits(weights(back), weights(fitted))
    assert back.classes_.dtype == fitted.classes_.dtype
    assert np.array_equal(back.predict(NEW).uncertainty, fitted.predict(NEW).uncertainty)
    assert np.array_equal(back.predict(NEW).label, fitted.predict(NEW).label)
    assert back.threshold(coverage=0.9).images == 100
    assert same_bits(weights(clone(back).fit(IMAGES, LABELS)), weights(fitted))
    assert np.array_equal(Predictor.load(tmp_path / "model").predict(NEW).uncertainty, fitted.predict(NEW).uncertainty)
    Image.fromarray(NEW[0]).save(tmp_path / "a.png")
    answer = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(tmp_path / "a.png"), "--json", "--quiet"])
    assert json.loads(answer.stdout)["label"] == str(fitted.predict(NEW[:1]).label[0])
    with pytest.raises(DsuiError, match="already holds a model; choose another folder or remove it"):
        fitted.save(tmp_path / "model")


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.convolution, self.output = nn.Conv2d(1, width, 3), nn.Linear(width * 36, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.output(self.convolution(images).relu().flatten(1))
        return output


def test_a_module_of_ones_own_is_trained_from_its_weights_and_needed_to_load(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    made = classifier(net, epochs=4).fit(IMAGES, LABELS)
    assert same_bits(net.state_dict(), before)
    assert made.score(NEW, TRUTH) > 0.8  # 0.911 when written
    assert clone(made).backbone is not net
    made.save(tmp_path / "model")
    assert json.loads(read_metadata(tmp_path / "model" / "model.safetensors")["config"])["backbone"] == "own:Net"
    for load_it in (UncertaintyClassifier.load, Predictor.load):
        with pytest.raises(ValueError, match="built on a user's own module, Net; name the function that makes it"):
            load_it(tmp_path / "model")
        with pytest.raises(DsuiError, match="does not hold the weights of dsui on own:Net"):
            load_it(tmp_path / "model", backbone=Net(8))
    back = UncertaintyClassifier.load(tmp_path / "model", backbone=Net())
    assert np.array_equal(back.predict_proba(NEW), made.predict_proba(NEW))


def test_files_that_cannot_be_read_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = digit_files(tmp_path / "digits")
    for split in ("train", "test"):
        file = next((folder / split / "3").iterdir())
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DsuiError, match="in Python and in grids: skip_bad"):
        classifier(epochs=1, size=8, channels=1).fit(folder)
    made = classifier(epochs=1, size=8, channels=1, calibration=0, skip_bad=True).fit(folder)
    assert made.predictor_.model.facts.config.skip_bad
    assert 0 < made.score(folder) <= 1
    made.save(tmp_path / "model")
    assert UncertaintyClassifier.load(tmp_path / "model").skip_bad


def test_a_module_for_a_model_that_has_its_backbone_is_refused(tmp_path: Path) -> None:
    classifier(epochs=1).fit(IMAGES, LABELS).save(tmp_path / "model")
    with pytest.raises(ValueError, match="was trained on small, which dsui builds; leave out the backbone"):
        UncertaintyClassifier.load(tmp_path / "model", backbone=Net())


def test_epochs_may_be_given_to_fit_and_settings_reach_the_method(tmp_path: Path) -> None:
    made = classifier(method="ensemble", settings={"members": 2}).fit(IMAGES, LABELS, epochs=1)
    config = made.predictor_.model.facts.config
    assert (config.recipe.epochs, config.options) == (1, {"members": 2})
    made.save(tmp_path / "model")
    again = UncertaintyClassifier.load(tmp_path / "model").fit(IMAGES, LABELS)
    assert same_bits(weights(again), weights(made))
    longer = UncertaintyClassifier.load(tmp_path / "model").fit(IMAGES[:200], LABELS[:200], epochs=2)
    assert longer.predictor_.model.facts.config.recipe.epochs == 2


def test_numbers_of_numpy_are_numbers_and_images_may_count_unequally() -> None:
    settings = {"epochs": np.int64(1), "peak_rate": np.float32(0.003)}
    plain = UncertaintyClassifier("small", recipe="demo", settings=settings, seed=np.int64(1))  # type: ignore[arg-type]
    model = plain.fit(IMAGES[:200], LABELS[:200])
    right = model.predict(IMAGES[200:300]).label == LABELS[200:300]
    assert model.score(IMAGES[200:300], LABELS[200:300]) == pytest.approx(right.mean())
    assert model.score(IMAGES[200:300], LABELS[200:300], sample_weight=right + 1e-9) == pytest.approx(1)


def test_it_trains_in_any_thread_and_says_what_it_does_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    made: list[UncertaintyClassifier] = []
    thread = threading.Thread(
        target=lambda: made.append(classifier(epochs=1, verbose=True).fit(IMAGES[:200], LABELS[:200]))
    )
    thread.start()
    thread.join()
    assert hasattr(made[0], "predictor_")
    assert capsys.readouterr().err.startswith("epoch 1/1: loss ")


def test_it_counts_epochs_as_the_command_line_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier(epochs=2, verbose=True).fit(IMAGES[:200], LABELS[:200])
    ours = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    words = ["--data", "digits", "--backbone", "small", "--recipe", "demo", "--set", "epochs=2", "--device", "cpu"]
    printed = CliRunner().invoke(app, ["train", *words, "--out", str(tmp_path / "run")]).stderr.splitlines()
    assert (
        ours == [line.partition(":")[0] for line in printed if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    )


def test_an_interruption_is_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise InterruptedRun("stopped after step 3 of 30")

    monkeypatch.setattr("dsui.classifier.fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        classifier().fit(IMAGES, LABELS)


class ImageFolder(Dataset[Any]):
    """As that of torchvision, which knows its folder."""

    def __init__(self, root: str) -> None:
        self.root = root


@pytest.mark.parametrize(
    ("images", "labels", "chosen", "sentence"),
    [
        (IMAGES, None, {}, "the labels are missing; give one for each image"),
        (IMAGES, LABELS[:-1], {}, "there are 1000 images and 999 labels"),
        (IMAGES.astype(int), LABELS, {}, "the images are int64; convert them to uint8"),
        (IMAGES / 16, LABELS, {}, r"floats run from 0 to 15\.94 and must lie in \[0, 1\]"),
        (np.full((4, 8, 8), np.nan), LABELS[:4], {}, "4 of 4 images hold NaN or infinity"),
        (np.zeros((4, 8, 8, 2), np.uint8), LABELS[:4], {}, "with 1 or 3 as channels"),
        (np.zeros((4, 64)), LABELS[:4], {}, r"the images have the shape \[4, 64\]"),
        (np.zeros((4, 8, 9), np.uint8), LABELS[:4], {}, "have 8x9 pixels; crop or resize them to squares"),
        (IMAGES, np.full(1000, 3), {}, "all labels are 3; a classifier needs images of at least two classes"),
        (IMAGES, LABELS, {"num_classes": 9}, "the labels run from 0 to 9; 9 classes need 0 to 8"),
        (IMAGES, LABELS - 1, {"num_classes": 10}, "the labels run from -1 to 8; 10 classes need 0 to 9"),
        (IMAGES, LABELS, {"num_classes": 11}, "the labels name 10 classes and num_classes is 11"),
        (IMAGES, LABELS / 2, {}, "the labels are float64; give integers or text"),
        (IMAGES, np.eye(10)[LABELS], {}, r"the labels have the shape \[1000, 10\]; give one label for each image"),
        (IMAGES[:0], LABELS[:0], {}, "there are no images"),
        ("nowhere", LABELS, {}, "nowhere has its own labels"),
        ("features:a.npz", None, {}, "features:a.npz are features and no images; train on them with `dsui train"),
        (DataLoader(TensorDataset(torch.zeros(4, 1, 8, 8))), None, {}, "must give pairs of images and labels"),
        (DataLoader(TensorDataset(torch.zeros(0, 1, 8, 8), torch.zeros(0))), None, {}, "gives no images"),
        (
            ImageFolder("my-images"),
            None,
            {},
            r"is a Dataset of PyTorch; give the path .*, as fit\('my-images'\)",
        ),
        (TensorDataset(torch.zeros(4, 1, 8, 8)), None, {}, "of its folder, or a DataLoader of it whose"),
        (IMAGES, LABELS, {"backbone": "resnet"}, "no backbone 'resnet'; did you mean resnet18"),
        (IMAGES, LABELS, {"backbone": nn.Conv2d(3, 4, 3)}, r"Conv2d fails on images of \[1, 8, 8\]"),
    ],
)
def test_each_mistake_of_a_caller_is_one_sentence(
    images: Any, labels: Any, chosen: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as mistake:
        classifier(**chosen).fit(images, labels)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("images", "chosen", "sentence"),
    [
        (IMAGES, {"method": "dsiu"}, "no method 'dsiu'; did you mean dsui"),
        (
            IMAGES,
            {"settings": {"epoch": 3}},
            "neither the recipe nor dsui has a setting 'epoch'; did you mean 'epochs'",
        ),
        (IMAGES, {"recipe": "paaper"}, "did you mean paper"),
        (IMAGES, {"calibration": 1.0}, "must be a share of the training images between 0 and 1"),
        (IMAGES[:40], {}, "fewer than one batch of 64"),
        (IMAGES, {"device": "tpu9"}, "there is no device 'tpu9'"),
    ],
)
def test_each_setting_that_cannot_be_is_told(images: Any, chosen: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DsuiError, match=sentence):
        classifier(**chosen).fit(images, np.arange(len(images)) % 2)


def test_images_of_another_kind_are_refused_by_predict(fitted: UncertaintyClassifier) -> None:
    with pytest.raises(ValueError, match="have 9x9 pixels and the model takes 8x8"):
        fitted.predict(np.zeros((2, 9, 9), np.uint8))
    with pytest.raises(ValueError, match=r"shape \[2, 3, 8, 8\]; with 1 as channels"):
        fitted.score(np.zeros((2, 3, 8, 8), np.uint8), [0, 1])
    with pytest.raises(DsuiError, match="nowhere is missing"):
        fitted.score("nowhere")


def test_importing_dsui_brings_neither_scikit_learn_nor_pillow() -> None:
    code = "import sys, dsui; assert not {'sklearn', 'PIL', 'typer'} & set(sys.modules); dsui.UncertaintyClassifier"
    subprocess.run([sys.executable, "-c", code], check=True)
