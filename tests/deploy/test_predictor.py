"""A run in use: what it says of images, in whatever form they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy import stats

from dsui import Prediction, Predictor
from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.sources import ImageSources
from dsui.evaluation.tasks import Evaluation
from dsui.methods.dsui import DualSupervised
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import run_facts
from dsui.runs.weights import load_weights, save_weights
from tests.support.digit_runs import CPU, HELD_OUT, calibrated, run

TEST = load("digits", "test").read(torch.arange(797))
LABELS = load("digits", "test").labels
SAMPLING: dict[str, Any] = {"neck": True, "dropout": 0.2, "samples": 3, "epochs": 1}


@pytest.fixture
def predictor() -> Predictor:
    return Predictor.load(calibrated(), "cpu")


@pytest.mark.parametrize(("method", "settings"), [("dsui", {}), ("msp", {}), ("mc-dropout", SAMPLING)])
def test_it_says_what_evaluation_says_of_the_same_images(method: str, settings: dict[str, Any]) -> None:
    path = run(method, held_out=HELD_OUT, **settings)
    facts = run_facts(path)
    with OutputCache(facts, CPU, keep=False) as cache:
        evaluation = Evaluation(cache, ImageSources(facts.config, facts.classes))
        stored, scores = evaluation.scores(ImageSources(facts.config, facts.classes).own())
        outputs = stored.whole()
    count = 797 if method != "mc-dropout" else 500  # evaluation's second batch of 500 goes on with other draws
    predictor = Predictor.load(path, "cpu")
    said, temperature = predictor.predict(TEST[:count], batch=500), predictor.calibration.temperature
    assert temperature is not None
    assert np.array_equal(said.probabilities, (outputs.logits[:count].double() / temperature).softmax(1))
    expected = scores["uncertainty"][:count].numpy()
    assert said.uncertainty == pytest.approx(expected, rel=1e-12, abs=1e-12)  # float64 sums of batches of other sizes
    assert said.label.tolist() == [facts.classes[label] for label in outputs.predictions[:count]]
    if method == "dsui":
        assert said.log_density is not None
        assert np.array_equal(-said.log_density, scores["log_density"])
    else:
        assert said.log_density is None


def test_the_fields_of_a_prediction_are_what_they_are_called(predictor: Predictor) -> None:
    said = predictor(TEST)
    assert len(said) == 797
    assert said.probabilities.sum(1) == pytest.approx(np.ones(797), abs=1e-12)  # rounding of ten float64 terms
    assert np.array_equal(said.max_probability, said.probabilities.max(1))
    assert said.label.tolist() == [str(label) for label in said.probabilities.argmax(1)]
    assert said.entropy == pytest.approx(stats.entropy(said.probabilities, axis=1), rel=1e-9)  # float64 in two orders
    method = predictor.model.method
    assert isinstance(method, DualSupervised)
    with torch.no_grad():
        density = method.head.log_prob(method.network(predictor.model.transform.plain(TEST)))
    assert said.log_density == pytest.approx(density.numpy(), rel=1e-5)  # float32 features in batches of other sizes
    assert np.mean(said.label == np.array([str(label) for label in LABELS.tolist()])) > 0.85  # 0.917 when written


def test_it_counts_as_the_array_of_its_labels(predictor: Predictor) -> None:
    said = predictor(TEST[:5])
    assert np.array_equal(np.asarray(said), said.label)
    assert np.array(said, dtype=float).tolist() == [float(label) for label in said.label]


def test_abnormal_is_what_lies_above_the_chosen_threshold(predictor: Predictor) -> None:
    assert predictor(TEST).abnormal is None
    for coverage, risk in ((0.9, None), (None, 0.2)):
        chosen = predictor.threshold(coverage, risk)
        said = predictor(TEST)
        assert said.abnormal is not None
        assert np.array_equal(said.abnormal, said.uncertainty > chosen.value)
        assert 0 < said.abnormal.mean() < 0.5
        assert predictor.chosen == chosen


def test_files_pictures_arrays_and_tensors_are_predicted_alike(predictor: Predictor, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for file, image in zip(files, TEST, strict=False):
        Image.fromarray(image[0].numpy()).save(file)
    pictures = [Image.open(file) for file in files]
    some = TEST[:5]
    forms: list[Any] = [
        files,
        [*map(str, files)],
        pictures,
        some.numpy(),
        some[:, 0],
        some / 255,
        list(some[:, 0].numpy()),
    ]
    expected = predictor(some)
    for form in [*forms, iter(files), [files[0], pictures[1], *some[2:]]]:
        assert np.array_equal(predictor.predict(form).probabilities, expected.probabilities)
    for single in (files[0], str(files[0]), pictures[0]):
        # one image and five take other paths through float32 matrix products
        assert predictor.predict(single).probabilities == pytest.approx(expected.probabilities[:1], rel=1e-4)


def test_the_size_of_a_batch_changes_nothing_but_rounding(predictor: Predictor) -> None:
    whole = predictor.predict(TEST, batch=797)
    for batch in (1, 100):
        part = predictor.predict(TEST[:200], batch=batch)
        assert part.uncertainty == pytest.approx(whole.uncertainty[:200], abs=1e-4)  # float32 features
    with pytest.raises(ValueError, match="batch must be at least 1"):
        predictor.predict(TEST, batch=0)


def test_a_method_that_samples_repeats_itself_and_leaves_the_callers_draws_alone() -> None:
    predictor = Predictor.load(run("mc-dropout", held_out=HELD_OUT, **SAMPLING), "cpu")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first = predictor(TEST[:50])
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(predictor(TEST[:50]).probabilities, first.probabilities)


def test_unusable_images_are_told(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(
        DsuiError, match=r"text\.png cannot be used \(it is not an image .*\); repair it or leave it out"
    ):
        predictor.predict([tmp_path / "text.png"])
    with pytest.raises(DsuiError, match=r"absent\.png cannot be used \(there is no such file\)"):
        predictor.predict(str(tmp_path / "absent.png"))
    with pytest.raises(ValueError, match="there are no images"):
        predictor.predict([])
    with pytest.raises(ValueError, match="with 1 as channels"):
        predictor.predict(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="have 9x9 pixels and the model takes 8x8"):
        predictor.predict(torch.zeros(2, 1, 9, 9))


def rewritten(to: Path, **metadata: str | None) -> Path:
    weights, facts = load_weights(calibrated() / WEIGHTS)
    to.mkdir()
    save_weights(
        to / WEIGHTS, weights, {name: value for name, value in (facts | metadata).items() if value is not None}
    )
    return to


def test_weights_are_enough_to_predict(predictor: Predictor, tmp_path: Path) -> None:
    alone = Predictor.load(str(rewritten(tmp_path / "alone")), CPU)
    assert np.array_equal(alone(TEST[:9]).uncertainty, predictor(TEST[:9]).uncertainty)


def test_runs_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="is from a dsui that did not store what predictions need; train the run again"):
        Predictor.load(rewritten(tmp_path / "older", calibration=None))
    with pytest.raises(DsuiError, match="holds no calibration that this dsui can read; train"):
        Predictor.load(rewritten(tmp_path / "damaged", calibration="{}"))
    with pytest.raises(DsuiError, match="is not the folder of a run"):
        Predictor.load(tmp_path / "absent")
    content = (calibrated() / WEIGHTS).read_bytes()
    for name, sentence in {
        "cut": "is cut off",
        "foreign": "was not written by dsui",
        "newer": "by a newer dsui",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / WEIGHTS).write_bytes(content[:-1])
        if name != "cut":
            save_file({"a": torch.ones(3)}, tmp_path / name / WEIGHTS, {"schema": "99"} if name == "newer" else None)
        with pytest.raises(DsuiError, match=sentence):
            Predictor.load(tmp_path / name)


def test_a_device_that_is_not_there_is_told() -> None:
    with pytest.raises(DsuiError, match="there is no device 'tpu9'; choose auto, cpu or cuda"):
        Predictor.load(calibrated(), "tpu9")
    if not torch.cuda.is_available():
        assert Predictor.load(calibrated()).model.device == CPU
        with pytest.raises(DsuiError, match="no GPU that PyTorch can use"):
            Predictor.load(calibrated(), "cuda")


def test_the_public_names_are_these() -> None:
    import dsui

    assert dsui.Predictor is Predictor
    assert dsui.Prediction is Prediction
    with pytest.raises(AttributeError, match="has no attribute 'Predicter'"):
        _ = dsui.Predicter  # type: ignore[attr-defined]
