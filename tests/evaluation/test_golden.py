"""Every score, detector and metric on outputs of 200 CIFAR-10 test images, compared with values on record.

Other tests check formulas and properties; this one notices when any number changes. A change that is meant to alter
numbers writes new values, and its commit says why. The outputs and the values were made by

    dsui train --data cifar10 --backbone small --method dsui --recipe demo --set components=2 --set epochs=2 \
        --calibration 0.9 --out runs/golden
    python -m tests.evaluation.test_golden runs/golden

and without a run, `python -m tests.evaluation.test_golden` writes the values of the stored outputs again.
Outputs are rounded to float16. Detectors are fitted to the first 100 images and score the others. DS-UI does not
sample, so its two streams stand for the two passes that mutual information needs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dsui.detectors import registry
from dsui.evaluation.evaluate import open_evaluation
from dsui.evaluation.metrics import ranking_metrics, selective_metrics
from dsui.evaluation.reliability import calibration_metrics
from dsui.outputs import Outputs
from dsui.score_table import NAMES, detector_scores
from dsui.scores import Moments, all_scores, reference, sirc

FIXTURES = Path(__file__).parents[1] / "fixtures"
OUTPUTS, GOLDEN = FIXTURES / "cifar10-outputs.safetensors", FIXTURES / "cifar10-golden.json"
IMAGES, FITTED = 200, 100
PARTS = ("features", "logits", "class_scores", "log_joint", "norm", "weight", "bias")

COUNTED = ("auroc", "fpr95", "false_alarms95", "ties", "augrc", "risk_at_80", "risk_at_90", "risk_at_95", "accuracy")
"""Quotients of sums of whole numbers and halves, which float64 holds exactly: they depend on the order alone."""
ROUNDED = 1e-9
"""The others are sums of quotients, logarithms and exponentials, which processors round and add in their own order. The
covariances of 100 images in 128 dimensions magnify this most: 7e-11 between instruction sets when written."""

Values = dict[str, dict[str, float]]


def stored_outputs() -> Outputs:
    stored = load_file(OUTPUTS)
    labels = stored.pop("labels").long()
    return Outputs.of({**{name: value.float() for name, value in stored.items()}, "labels": labels})


def every_score(train: Outputs, test: Outputs) -> dict[str, Tensor]:
    scores = all_scores(test, reference([train]))
    streams = [part.double().log_softmax(1) for part in (test.logits, test.class_scores) if part is not None]
    sampling = replace(test, samples=torch.stack(streams, 1))
    scores["mutual_information"] = all_scores(sampling, reference([train]))["mutual_information"]
    for name in registry.names():
        detector = registry.build(name).fit(train)
        own, joint = detector_scores(name)
        scores[own] = detector.score(test)
        scores[joint] = sirc(test.logits, scores[own], *Moments.of(detector.score(train)))
    return scores


def measure() -> Values:
    """By score or stream: every metric, and the score of the first image."""
    whole = stored_outputs()
    train, test = whole.select(torch.arange(FITTED)), whole.select(torch.arange(FITTED, IMAGES))
    assert test.labels is not None
    assert test.class_scores is not None
    errors = test.predictions != test.labels
    found: Values = {
        "prediction": calibration_metrics(test.logits, test.labels),
        "density": calibration_metrics(test.class_scores, test.labels),
    }
    for name, values in every_score(train, test).items():
        metrics = {**ranking_metrics(values, errors), **selective_metrics(values, errors)}
        found[name] = {**metrics, "first": values[0].item()}
    return found


def test_all_scores_detectors_and_metrics_are_those_on_record() -> None:
    expected, found = json.loads(GOLDEN.read_text(encoding="utf-8")), measure()
    assert list(found) == list(expected)
    assert {name: list(row) for name, row in found.items()} == {name: list(row) for name, row in expected.items()}
    changed = {
        (score, metric): (value, found[score][metric])
        for score, row in expected.items()
        for metric, value in row.items()
        if found[score][metric] != pytest.approx(value, rel=0 if metric in COUNTED else ROUNDED, abs=0)
    }
    assert changed == {}


def test_the_record_holds_every_score_of_the_table_and_every_detector() -> None:
    recorded = set(json.loads(GOLDEN.read_text(encoding="utf-8")))
    detectors = {score for name in registry.names() for score in detector_scores(name)}
    assert recorded == {"prediction", "density", *NAMES, *detectors}


def write(run: str | None) -> None:
    if run is not None:
        with open_evaluation(run, "cpu", keep_outputs=False) as evaluation:
            whole = evaluation.outputs(evaluation.sources.own()).whole().select(torch.arange(IMAGES))
        parts = {name: value.half() for name, value in whole.tensors().items() if name in PARTS}
        assert whole.labels is not None
        save_file({**parts, "labels": whole.labels.to(torch.uint8)}, OUTPUTS)
    GOLDEN.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else None)
