"""What an ONNX file gives through `OnnxPredictor`, against the same in numpy."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.backbones.preparation import Fit, Preparation
from dsui.data.decode import as_seen, central_square, decode_image, pixels
from dsui.data.folder import folder_set
from dsui.errors import DataError, ModelError
from dsui.prediction import Prediction
from dsui.runtime import ImageError, OnnxPredictor
from tests.support.onnx_model import CLASSES, LIMITS, expected_outputs, write_onnx_model

SINGLE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}  # float32 against float64
COLOURS = [(250, 10, 10), (100, 250, 30), (128, 128, 128), (90, 140, 160)]


def images(count: int, channels: int = 3, size: int = 8) -> Any:
    """Images of one colour each with a little noise, so that their means differ."""
    generator = np.random.default_rng(1)
    colours = generator.integers(0, 256, (count, 1, 1, channels))
    noise = generator.integers(-20, 21, (count, size, size, channels))
    return np.clip(colours + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_onnx_model(tmp_path / "tiny.onnx", limits=("uncertainty", "foreignness"))
    return tmp_path / "tiny.onnx"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Wide photographs with a margin that the central square leaves out."""
    paths = []
    for number, colour in enumerate(COLOURS):
        picture = Image.new("RGB", (60, 40), "black")
        picture.paste(colour, (4, 0, 56, 40))
        paths.append(tmp_path / f"{number}.png")
        picture.save(paths[-1])
    return paths


def same(left: Prediction, right: Prediction) -> bool:
    return left.label.tolist() == right.label.tolist() and np.array_equal(left.probabilities, right.probabilities)


def test_every_field_is_that_of_the_formula(model: Path) -> None:
    pixels = images(50)
    prediction = OnnxPredictor(model).predict(pixels, batch=16)
    expected = expected_outputs(pixels)
    p = expected["probabilities"]
    assert prediction.label.tolist() == [CLASSES[each] for each in expected["label"]]
    np.testing.assert_allclose(prediction.probabilities, p, **SINGLE)
    np.testing.assert_allclose(prediction.max_probability, p.max(1), **SINGLE)
    np.testing.assert_allclose(prediction.entropy, -(p * np.log(p)).sum(1), rtol=1e-4, atol=1e-6)
    for name in ("uncertainty", "foreignness", "log_density"):
        np.testing.assert_allclose(getattr(prediction, name), expected[name], **SINGLE)
    uncertain = expected["uncertainty"] > LIMITS["uncertainty"]["value"]
    foreign = expected["foreignness"] > LIMITS["foreignness"]["value"]
    assert prediction.abnormal is not None
    assert prediction.reason is not None
    assert prediction.abnormal.tolist() == (uncertain | foreign).tolist()
    words = {(0, 0): "", (1, 0): "uncertain", (0, 1): "foreign", (1, 1): "uncertain and foreign"}
    assert prediction.reason.tolist() == [words[u, f] for u, f in zip(uncertain, foreign, strict=True)]
    assert {"", "uncertain", "foreign"} <= set(prediction.reason.tolist())
    assert list(prediction.scores) == ["uncertainty", "foreignness"]


def test_a_file_without_thresholds_and_density_says_none(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "plain.onnx", density=False, limits=(), channels=1)
    predictor = OnnxPredictor(tmp_path / "plain.onnx")
    prediction = predictor.predict(images(5, channels=1))
    assert predictor.thresholds is None
    assert prediction.abnormal is None
    assert prediction.reason is None
    assert prediction.log_density is None
    assert prediction.foreignness is None
    assert prediction.scores == {}


def test_all_forms_of_the_same_images_give_the_same(model: Path, files: list[Path]) -> None:
    predictor = OnnxPredictor(model)
    prepared = np.stack([predictor.prepare(each) for each in files])
    assert prepared.tolist() == [[[list(colour)] * 8] * 8 for colour in COLOURS]
    expected = predictor.predict_prepared(prepared)
    pictures = [Image.open(each) for each in files]
    channels_first = prepared.transpose(0, 3, 1, 2)
    for form in (
        files,
        [str(each) for each in files],
        [each.read_bytes() for each in files],
        pictures,
        iter(files),
        list(prepared),
        prepared,
        channels_first,
        prepared / 255,
        torch.from_numpy(prepared),
    ):
        assert same(predictor.predict(form, batch=3), expected)
    for number, file in enumerate(files):
        for alone in (file, str(file), file.read_bytes(), pictures[number], prepared[number : number + 1]):
            assert predictor.predict(alone).label.tolist() == [expected.label[number]]


def test_files_are_prepared_as_training_prepares_them(tmp_path: Path) -> None:
    """Upright by EXIF, on white, in the colours of the model, central square, antialiased."""
    for channels in (1, 3):
        write_onnx_model(tmp_path / "m.onnx", channels=channels, size=16)
        picture = Image.fromarray(np.random.default_rng(2).integers(0, 256, (40, 31, 4), dtype=np.uint8), "RGBA")
        exif = Image.Exif()
        exif[0x0112] = 6  # a quarter turn
        picture.save(tmp_path / "turned.png", exif=exif)
        with Image.open(tmp_path / "turned.png") as stored:
            expected = np.asarray(central_square(as_seen(stored, channels), 16)).reshape(16, 16, channels)
        assert np.array_equal(OnnxPredictor(tmp_path / "m.onnx").prepare(tmp_path / "turned.png"), expected)


def test_a_pretrained_networks_preparation_is_kept(tmp_path: Path, files: list[Path]) -> None:
    squash = {"edge": 8, "fit": "squash", "interpolation": "nearest", "rounds_down": False}
    write_onnx_model(tmp_path / "squash.onnx", changes={"preparation": squash})
    prepared = OnnxPredictor(tmp_path / "squash.onnx").prepare(files[0])
    assert prepared[:, 0].tolist() == [[0, 0, 0]] * 8  # the margin, which the central square leaves out
    assert prepared[:, 4].tolist() == [[*COLOURS[0]]] * 8


@pytest.mark.parametrize("fit", ["centre", "letterbox"])
@pytest.mark.parametrize("channels", [1, 3])
def test_files_and_their_bytes_are_read_as_a_run_reads_them(tmp_path: Path, fit: Fit, channels: int) -> None:
    """A large JPEG is decoded smaller, which changes values: whoever decodes all of it gets other pixels."""
    way = Preparation(size=16, edge=16, fit=fit)
    facts = {"edge": 16, "fit": fit, "interpolation": "bilinear", "rounds_down": False}
    write_onnx_model(tmp_path / "m.onnx", channels=channels, size=16, changes={"preparation": facts})
    noise = np.random.default_rng(2).integers(0, 256, (30, 41, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((411, 307))
    (tmp_path / "photos" / "train" / "a").mkdir(parents=True)
    predictor = OnnxPredictor(tmp_path / "m.onnx")
    for name in ("large.jpg", "large.png"):
        file = tmp_path / "photos" / "train" / "a" / name
        picture.save(file)
        of_run = folder_set(tmp_path / "photos", "train", 16, channels, preparation=way).read(torch.tensor([0]))[0]
        wanted = of_run.numpy().transpose(1, 2, 0)
        decoded_whole = pixels(way.apply(decode_image(file, channels))).transpose(1, 2, 0)
        assert np.array_equal(wanted, decoded_whole) == name.endswith("png")
        assert np.array_equal(predictor.prepare(file), wanted)
        assert np.array_equal(predictor.prepare(file.read_bytes()), wanted)
        file.unlink()


def test_features_are_taken_as_an_array(tmp_path: Path, files: list[Path]) -> None:
    write_onnx_model(tmp_path / "f.onnx", features=True, channels=12)
    predictor = OnnxPredictor(tmp_path / "f.onnx")
    features = np.random.default_rng(3).random((20, 12))
    expected = expected_outputs(features)
    for form in (features, features.astype(np.float32), torch.from_numpy(features)):
        prediction = predictor.predict(form, batch=7)
        np.testing.assert_allclose(prediction.probabilities, expected["probabilities"], **SINGLE)
    assert predictor.predict(features[0]).label[0] == prediction.label[0]
    with pytest.raises(ValueError, match=r"features have the shape \[20, 11\]; this model takes \[rows, 12\]"):
        predictor.predict(features[:, :11])
    with pytest.raises(ValueError, match="1 of 20 rows of features hold NaN"):
        predictor.predict(np.where(np.arange(20)[:, None] == 3, np.nan, features))
    for wrong in (files, files[0], images(2)):
        with pytest.raises((ModelError, ValueError), match=r"takes features and no images|shape \[2, 8, 8, 3\]"):
            predictor.predict(wrong)


def test_a_score_that_is_no_number_is_rejected_and_has_a_reason(tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "f.onnx", features=True, channels=2, limits=("uncertainty", "foreignness"))
    prediction = OnnxPredictor(tmp_path / "f.onnx").predict(np.array([[1e30, 1e30], [0.5, 0.5]]))
    assert prediction.abnormal is not None
    assert prediction.reason is not None
    assert np.isnan(prediction.uncertainty[0]) or np.isinf(prediction.foreignness[0])  # type: ignore[index]
    assert prediction.abnormal[0]
    assert "foreign" in prediction.reason[0]


def test_an_image_on_a_limit_is_decided_by_the_graph(tmp_path: Path) -> None:
    """The graph compares in float32, and 0.4 is a little more there than in float64."""
    write_onnx_model(tmp_path / "f.onnx", features=True, channels=1, limits=("foreignness",))
    predictor = OnnxPredictor(tmp_path / "f.onnx")
    edge = np.float32(0.5) + np.sqrt(np.float32(0.4))
    near = [edge]
    for _ in range(6):
        near = [np.nextafter(near[0], np.float32(0)), *near, np.nextafter(near[-1], np.float32(9))]
    prediction = predictor.predict(np.array(near, np.float32)[:, None])
    assert prediction.abnormal is not None
    assert prediction.reason is not None
    assert 0 < prediction.abnormal.sum() < len(near)
    assert [bool(each) for each in prediction.reason] == prediction.abnormal.tolist()


def test_a_rejection_that_no_limit_explains_has_the_reason_of_the_nearest(tmp_path: Path) -> None:
    """As where the graph compares with more digits than it gives; here its metadata name larger limits."""
    nearest = [{**LIMITS["uncertainty"], "value": 99.0}, {**LIMITS["foreignness"], "value": 5.0}]
    metadata = write_onnx_model(tmp_path / "m.onnx", limits=("uncertainty", "foreignness"))
    changes = {"thresholds": {**metadata["thresholds"], "limits": nearest}}
    write_onnx_model(tmp_path / "m.onnx", limits=("uncertainty", "foreignness"), changes=changes)
    prediction = OnnxPredictor(tmp_path / "m.onnx").predict(images(50))
    assert prediction.abnormal is not None
    assert prediction.reason is not None
    assert prediction.reason.tolist() == ["foreign" if each else "" for each in prediction.abnormal]


def test_the_score_of_the_density_is_minus_the_density(tmp_path: Path) -> None:
    """So that a limit on it is a largest value, as of every score."""
    limit = {"score": "log_density", "value": LIMITS["foreignness"]["value"], "finds": "foreign images"}
    metadata = write_onnx_model(tmp_path / "m.onnx", limits=("foreignness",))
    changes = {"thresholds": {**metadata["thresholds"], "limits": [limit]}}
    write_onnx_model(tmp_path / "m.onnx", limits=("foreignness",), changes=changes)
    prediction = OnnxPredictor(tmp_path / "m.onnx").predict(images(50))
    assert prediction.log_density is not None
    assert prediction.abnormal is not None
    assert np.array_equal(prediction.scores["log_density"], -prediction.log_density)
    assert prediction.abnormal.tolist() == (prediction.scores["log_density"] > limit["value"]).tolist()


def test_files_that_are_none_are_named(model: Path, files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    predictor = OnnxPredictor(model)
    with pytest.raises(DataError, match=r"text\.png cannot be used \(it is not an image although its name ends in"):
        predictor.predict([*files, tmp_path / "text.png"])
    with pytest.raises(DataError, match=r"an image cannot be used \(it is not an image\); repair it or leave it out"):
        predictor.predict(b"no image")
    for wrong in (b"", b"no image", files[0].read_bytes()[:60], tmp_path / "absent.png", tmp_path):
        with pytest.raises(ImageError):
            predictor.prepare(wrong)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (np.zeros((2, 9, 8, 3), np.uint8), "have 9x8 pixels and the model takes 8x8"),
        (np.zeros((2, 8, 8), np.uint8), r"shape \[2, 8, 8\]; with 3 as channels"),
        (np.zeros((0, 8, 8, 3), np.uint8), "there are no images; give at least one"),
        (np.array(["a.png", "b.png"]), "cannot be read as numbers .they are text"),
        (np.array([{}]), "cannot be read as numbers .they are objects"),
        ([], "there are no images; give at least one"),
        ([3], "an image is int; give files, Pillow images, arrays or tensors"),
    ],
)
def test_what_are_no_images_is_told(model: Path, wrong: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        OnnxPredictor(model).predict(wrong)


def test_prepared_images_must_be_what_prepare_gives(model: Path) -> None:
    predictor = OnnxPredictor(model)
    for wrong in (images(2) / 255, images(2).transpose(0, 3, 1, 2), images(2)[:0], images(2)[0]):
        with pytest.raises(
            ValueError, match=r"prepared images are uint8 \[N, 8, 8, 3\], and these are (uint8|float64) "
        ):
            predictor.predict_prepared(wrong)


@pytest.mark.parametrize("setting", ["threads", "batch"])
def test_settings_below_one_are_told(model: Path, setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be at least 1, got 0"):
        OnnxPredictor(model, threads=int(setting != "threads")).predict(images(2), batch=int(setting != "batch"))


def test_threads_share_a_predictor(model: Path) -> None:
    predictor, pixels = OnnxPredictor(model, threads=1), images(64)
    expected = predictor.predict(pixels)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda start: predictor.predict_prepared(pixels[start : start + 8]), range(0, 64, 8)))
    assert same(Prediction.concatenated(found), expected)


def test_a_prediction_becomes_a_table(model: Path) -> None:
    frame = OnnxPredictor(model).predict(images(3)).to_frame()
    assert list(frame)[:2] == ["uncertainty", "foreignness"]
    assert {"label", "max_probability", "entropy", "log_density", "abnormal", "reason"} <= set(frame)


def test_an_image_that_is_bytes_in_memory_is_no_path(model: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), COLOURS[0]).save(stream, "JPEG")
    assert OnnxPredictor(model).prepare(stream.getvalue()).shape == (8, 8, 3)
