"""What training leaves in the weights for predictions, on the embedded digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dsui.data.pipeline import Batch, open_loader
from dsui.data.registry import load
from dsui.errors import DivergenceError, DsuiError
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.sources import ImageSources
from dsui.outputs import DEFINITION, Outputs
from dsui.runs.calibration import CALIBRATION, Calibration, _sorted, even_choice, measure, stored_temperature
from dsui.runs.folder import WEIGHTS
from dsui.runs.images import held_out_images, training_images
from dsui.runs.model import load_model, run_facts
from dsui.runs.temperature import fit_temperature
from dsui.runs.weights import read_metadata
from dsui.scores import SECONDARY, Moments, Reference, reference
from tests.support.digit_runs import CPU, HELD_OUT, calibrated, digit_config, run, train


def stored(path: Path) -> Calibration:
    return Calibration.from_text(read_metadata(path / WEIGHTS)[CALIBRATION])


def test_a_calibration_survives_its_text_to_the_bit() -> None:
    uncertainties = torch.randn(50, dtype=torch.float64).sort().values
    reference = Reference({"energy": Moments(0.1, 1 / 3)}, -1e300 / 3)
    own = Calibration(reference, uncertainties, uncertainties > 0.3, temperature=2 / 3)
    back = Calibration.from_text(own.to_text())
    assert back.temperature == own.temperature
    assert back.reference == own.reference
    assert torch.equal(back.uncertainties, uncertainties)
    assert torch.equal(back.errors, own.errors)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        f'{{"definition": {DEFINITION}, "moments": {{}}, "log_floor": null, "uncertainties": [1], "errors": []}}',
        f'{{"definition": {DEFINITION}, "moments": [1]}}',
        '{"definition": 1, "moments": {}, "log_floor": null, "uncertainties": [], "errors": []}',
    ],
)
def test_a_strange_text_is_refused(text: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Calibration.from_text(text)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN"])
@pytest.mark.parametrize("where", ["uncertainties", "mean", "floor"])
def test_a_number_that_is_none_is_refused(number: str, where: str) -> None:
    """An infinite uncertainty among the images would make a threshold that accepts everything."""
    own = Calibration(
        Reference({"energy": Moments(3.25, 1.0)}, 4.25), torch.tensor([0.5, 1.25]).double(), torch.zeros(2)
    )
    text = own.to_text()
    digits = {"uncertainties": "1.25", "mean": "3.25", "floor": "4.25"}[where]
    Calibration.from_text(text)
    with pytest.raises(ValueError, match="NaN or infinity"):
        Calibration.from_text(text.replace(digits, number))


def test_uncertainties_that_are_no_numbers_end_the_training_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Reference({}, None)
    outputs = Outputs(torch.zeros(2, 1), torch.zeros(2, 2))
    batch = Batch(torch.zeros(2, 1, 1, 1), torch.zeros(2, dtype=torch.int64), torch.arange(2))
    infinite = {"uncertainty": torch.tensor([0.0, torch.inf])}
    monkeypatch.setattr("dsui.runs.calibration.all_scores", lambda *_: infinite)
    with pytest.raises(DivergenceError, match="the uncertainty of 1 of 2 held-out images is not a number or infinite"):
        _sorted(known, [(outputs, batch)])


@pytest.mark.parametrize("temperature", [0, -1, 1e9, "NaN"])
def test_a_temperature_that_is_none_is_refused(temperature: object) -> None:
    own = Calibration(Reference({}, None), torch.zeros(1).double(), torch.zeros(1), temperature=0.75)
    with pytest.raises(ValueError, match=r"out of range|NaN or infinity"):
        Calibration.from_text(own.to_text().replace("0.75", str(temperature)))


def test_a_calibration_of_an_earlier_version_has_no_temperature() -> None:
    values = json.loads(Calibration(Reference({}, None), torch.zeros(1).double(), torch.zeros(1)).to_text())
    del values["temperature"]
    assert Calibration.from_text(json.dumps(values)).temperature is None


def test_the_temperature_is_that_of_the_held_out_images_and_of_the_trained_method_alone() -> None:
    path = run("msp", held_out=HELD_OUT, neck=True, dropout=0.2)
    facts = run_facts(path)
    model = load_model(facts, CPU)
    held_out = held_out_images(facts.config, load("digits", "train"))
    with torch.no_grad():
        logits = model.method.predict(model.transform.plain(held_out.read(torch.arange(200)))).logits
    expected = fit_temperature(logits, held_out.labels)
    assert stored_temperature(facts) == pytest.approx(expected, rel=1e-4)  # float32 logits of batches of other sizes
    assert stored_temperature(run_facts(path, "mc-dropout")) is None
    assert stored_temperature(run_facts(run("msp"))) is None


SETTINGS: dict[str, dict[str, Any]] = {
    "dsui": {},
    "mc-dropout": {"neck": True, "dropout": 0.2, "samples": 3, "epochs": 1},
    "ensemble": {"members": 2, "epochs": 1},
}


@pytest.mark.parametrize("method", SETTINGS)
def test_what_training_stored_is_what_the_model_read_back_says_of_the_same_images(method: str) -> None:
    path = run(method, held_out=HELD_OUT, **SETTINGS[method])
    facts = run_facts(path)
    model, whole = load_model(facts, CPU), load("digits", "train")
    training, held_out = training_images(facts.config, whole), held_out_images(facts.config, whole)
    assert (len(training.labels), len(held_out.labels)) == (800, 200)
    again = measure(model.method, model.transform, open_loader(training, CPU), 800, held_out, 64, CPU)
    assert again.to_text() == stored(path).to_text()
    assert bool((stored(path).uncertainties.diff() >= 0).all())
    if method == "mc-dropout":
        return  # its predictions depend on the draws, which depend on the batch
    with torch.no_grad():
        predicted = model.method.predict(model.transform.plain(held_out.read(torch.arange(200)))).predictions
    assert int(stored(path).errors.sum()) == int((predicted != held_out.labels).sum())


def test_the_moments_are_those_evaluation_works_with() -> None:
    facts = run_facts(calibrated())
    with OutputCache(facts, CPU, keep=False) as cache:
        training = cache.get(ImageSources(facts.config, facts.classes).training())
        moments, floor = reference(training.chunks())
    own = stored(calibrated()).reference
    for name, (mean, deviation) in moments.items():
        assert own.moments[name] == pytest.approx((mean, deviation), rel=1e-6)  # float32 features, other batches
    assert set(own.moments) == set(moments) == set(SECONDARY)
    assert own.log_floor == pytest.approx(floor, rel=1e-6)


def test_a_run_without_held_out_images_knows_its_moments_and_has_no_threshold() -> None:
    calibration = stored(run("msp"))
    assert set(calibration.reference.moments) == {"energy"}
    for asked in ({"coverage": 0.95}, {"risk": 0.1}):
        with pytest.raises(DsuiError, match=r"without calibration images, .* train it with --calibration 0\.1"):
            calibration.threshold(**asked)


@pytest.mark.parametrize("asked", [{}, {"coverage": 0.9, "risk": 0.1}])
def test_a_threshold_is_chosen_by_one_of_the_two(asked: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="by coverage or by risk, one of the two"):
        stored(calibrated()).threshold(**asked)


def test_a_run_stopped_before_it_was_measured_goes_on_to_the_same_calibration(tmp_path: Path) -> None:
    path = train(tmp_path / "run", digit_config("dsui", held_out=HELD_OUT, epochs=1))
    first = read_metadata(path / WEIGHTS)
    (path / WEIGHTS).unlink()
    train(path, digit_config("dsui", held_out=HELD_OUT, epochs=1), resume=True)
    assert read_metadata(path / WEIGHTS) == first


@pytest.mark.parametrize(("count", "most"), [(0, 10), (7, 10), (10, 10), (11, 10), (50_000, 10_000), (73_257, 10_000)])
def test_an_even_choice_has_no_gaps_and_no_doubles(count: int, most: int) -> None:
    chosen = even_choice(count, most)
    assert len(chosen) == min(count, most)
    assert len(chosen.unique()) == len(chosen)
    if count:
        steps = torch.cat([chosen, torch.tensor([count])]).diff()
        assert chosen[0] == 0
        assert 1 <= int(steps.min()) <= int(steps.max()) <= -(-count // most)


def test_the_calibration_of_ten_thousand_images_is_small() -> None:
    many = Calibration(Reference({}, None), torch.randn(10_000, dtype=torch.float64), torch.zeros(10_000).bool())
    assert len(many.to_text()) < 300_000  # 240,000 when written; a header of safetensors may have 100 million
    assert len(json.loads(many.to_text())["errors"]) == 10_000
