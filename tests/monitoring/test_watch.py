"""Which monitors watch a stream, with which chance of a false alarm each, and what they say together."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from dsui.errors import DataError
from dsui.monitoring import AcceptanceMonitor, RiskMonitor, UncertaintyMonitor
from dsui.monitoring.predictions import Predictions
from dsui.monitoring.promise import Promise
from dsui.monitoring.watch import watch

GENERATOR = np.random.default_rng(0)
SCORES = {"uncertainty": GENERATOR.normal(size=300).tolist(), "foreignness": GENERATOR.normal(size=300).tolist()}
ONE = Promise(300, ("uncertainty",), asked_coverage=0.95, accepted=0.953, scores=SCORES)


def stream(values: np.ndarray, accepted: np.ndarray | None = None) -> Predictions:
    names = [f"{place}.png" for place in range(len(values))]
    decisions: list[bool | None] = [None] * len(values)
    if accepted is not None:
        decisions = [bool(each) for each in accepted]
    return Predictions(names, ["cat"] * len(values), decisions, {"uncertainty": values.tolist()})


def test_the_chance_of_a_false_alarm_is_divided_among_the_monitors() -> None:
    two = Promise(300, ("uncertainty", "foreignness"), asked_coverage=0.95, scores=SCORES)
    alone, rate, both = (
        promise.monitors(0.01, decided=decided, scored=["uncertainty", "foreignness"])
        for promise, decided in ((ONE, False), (ONE, True), (two, True))
    )
    assert [type(each) for each in alone] == [UncertaintyMonitor]
    assert [type(each) for each in rate] == [AcceptanceMonitor, UncertaintyMonitor]
    assert [type(each) for each in both] == [UncertaintyMonitor] * 2, "of two thresholds the rate is not known"
    for monitors in (alone, rate, both):
        assert sum(each.false_alarm for each in monitors) == pytest.approx(0.01)


def test_a_threshold_by_risk_was_chosen_among_all_calibration_images() -> None:
    chosen = Promise(300, ("uncertainty",), asked_risk=0.02, accepted=0.9, scores=SCORES)
    monitor, _ = chosen.monitors(0.01, decided=True, scored=["uncertainty"])
    assert isinstance(monitor, AcceptanceMonitor)
    assert monitor.promised == pytest.approx(271 / 301)
    assert monitor.choices == 300


def test_a_stream_like_the_calibration_is_silent_and_another_is_not() -> None:
    generator = np.random.default_rng(1)
    same = generator.normal(size=400)
    quiet = watch(stream(same, same < 1.64), ONE)
    assert not quiet.alarm
    assert quiet.sentence == "No alarm over 400 images."
    moved = np.concatenate([same, generator.normal(size=200) + 2])
    loud = watch(stream(moved, moved < 1.64), ONE)
    assert loud.alarm
    assert loud.sentence.startswith("ALARM over 600 images: they are not like the calibration images.")
    told = json.loads(json.dumps(loud.to_mapping(), allow_nan=False))
    assert [each["kind"] for each in told["monitors"]] == ["acceptance", "uncertainty"]


def test_an_order_that_means_nothing_can_be_left_out() -> None:
    ordered = np.sort(np.random.default_rng(2).normal(size=400))
    assert watch(stream(ordered), ONE).alarm
    assert not watch(stream(ordered), ONE, shuffled=True).alarm


def test_labels_that_come_later_are_watched_for_the_risk() -> None:
    same = np.random.default_rng(3).normal(size=300)
    found = stream(same, same < 1.64)
    labels = {name: "dog" if place % 3 == 0 else "cat" for place, name in enumerate(found.files)}
    risky = watch(found, ONE, labels=labels, risk=0.05)
    assert risky.alarm
    assert isinstance(risky.monitors[-1], RiskMonitor)
    assert risky.monitors[-1].observations == (same < 1.64).sum(), "rejected images are not counted"
    assert sum(each.false_alarm for each in risky.monitors) == pytest.approx(0.01)
    with pytest.raises(DataError, match="no risk was promised"):
        watch(found, ONE, labels=labels)
    with pytest.raises(DataError, match="no accepted image has a label"):
        watch(found, ONE, labels={"other.png": "cat"}, risk=0.05)


def test_where_nothing_can_be_watched_it_is_said() -> None:
    few = Promise(9, scores={"uncertainty": list(map(float, range(9)))})
    with pytest.raises(DataError, match="nothing can be watched"):
        watch(stream(np.zeros(5)), few)


def test_the_metadata_of_a_model_file_give_the_same_promise() -> None:
    quantiles = {
        name: np.quantile(each, np.linspace(0, 1, 101), method="inverted_cdf").tolist() for name, each in SCORES.items()
    }
    metadata = {
        "thresholds": {
            "limits": [{"score": "uncertainty", "value": 1.6, "finds": "errors"}],
            "asked": {"coverage": 0.95, "risk": None},
            "coverage": 0.953,
            "images": 300,
        },
        "calibration": {"images": 300, "errors": 3, **quantiles},
    }
    promise = Promise.of_metadata(json.dumps(metadata))
    values = np.random.default_rng(4).normal(size=200)
    from_file, from_run = (watch(stream(values, values < 1.6), each) for each in (promise, ONE))
    assert from_file.to_mapping() == from_run.to_mapping()
    with pytest.raises(ValueError, match="no calibration and no thresholds"):
        Promise.of_metadata('{"thresholds": null, "calibration": null}')


def test_monitoring_needs_no_library_but_numpy() -> None:
    heavy = ("torch", "scipy", "sklearn", "rich", "typer", "PIL", "yaml")
    code = f"import sys, dsui.monitoring.watch; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
