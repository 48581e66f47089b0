"""The paper's Figure 1 claim on digits, five seeds: what holds, what does not, and that the docs say so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.preprocessing import normalize

from dsui.data.registry import load as load_images
from dsui.runs.model import load_model, run_facts
from studies.geometry import SEEDS, VARIANTS, Geometry, main, measure, read, table
from tests.support.tiny_grid import run_study, tiny_study

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Geometry]]:
    return {name: [measure(variant, seed) for seed in range(SEEDS)] for name, variant in VARIANTS.items()}


@pytest.mark.parametrize("variant", ["sgvb", "bounded, logit scale from 16"])
def test_against_plain_cross_entropy_classes_are_tighter_and_farther_apart_in_every_seed(
    measured: dict[str, list[Geometry]], variant: str
) -> None:
    for ours, plain in zip(measured[variant], measured["plain CE"], strict=True):
        assert ours.within < plain.within
        assert ours.between > plain.between
        assert ours.ratio < plain.ratio


def test_a_larger_logit_scale_asks_for_less(measured: dict[str, list[Geometry]]) -> None:
    """With the default start `bounded` draws classes no closer than plain cross-entropy does."""
    for usual, small in zip(measured["bounded"], measured["bounded, logit scale from 16"], strict=True):
        assert usual.within > small.within
        assert usual.between < small.between


def test_the_push_does_not_enlarge_margins_over_the_pull_alone(measured: dict[str, list[Geometry]]) -> None:
    """The half of Figure 1 that does not hold: the pull alone (sgvb) is tighter, its class means farther apart."""
    for bounded, sgvb in zip(measured["bounded"], measured["sgvb"], strict=True):
        assert bounded.within > sgvb.within
        assert bounded.between < sgvb.between


GRID = """
title: Tiny
data: digits
backbone: small
recipe: demo
set: {epochs: 1}
seeds: [0]
tasks: [misclassification]
runs:
  - {method: dsui}
  - {method: msp, held_out: 0.2, label: "plain"}
table:
  - {task: accuracy, metrics: accuracy, scores: prediction}
"""


def test_the_runs_of_a_study_are_measured_on_the_features_before_their_last_layer(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(GRID)
    rows = tmp_path / "rows.jsonl"
    with pytest.raises(SystemExit, match=r"has no finished run of .* begin with dsui reproduce"):
        main(rows, str(tmp_path / "tiny.yaml"), str(tmp_path / "study"))
    study = tiny_study(tmp_path / "study", GRID)
    run_study(study)
    main(rows, str(tmp_path / "tiny.yaml"), str(tmp_path / "study"))
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row["variant"], row["seed"], row["data"]) for row in found] == [
        ("dsui", 0, "digits"),
        ("plain", 0, "digits"),
    ]
    facts = run_facts(study.run_path(study.grid.cells[0]))
    model, images = load_model(facts, torch.device("cpu")), load_images("digits", "test")
    with torch.no_grad():
        pixels = model.transform.plain(images.read(torch.arange(len(images.labels))))
        h = model.method.get_submodule("network")(pixels).double().numpy()
    z = normalize((h - h.mean(0)) / h.std(0, ddof=1))
    means = [z[images.labels.numpy() == label].mean(0) for label in range(10)]
    distances = [np.linalg.norm(row - means[label]) for row, label in zip(z, images.labels.tolist(), strict=True)]
    assert found[0]["within"] == pytest.approx(np.mean(distances), rel=1e-5)  # float32 features of other batches
    assert found[0]["between"] == pytest.approx(pdist(means).mean(), rel=1e-5)
    assert "| plain | " in table(read(rows))
    assert "±" not in table(read(rows)), "one run each"


def test_the_committed_rows_are_reproduced(measured: dict[str, list[Geometry]]) -> None:
    for name, rows in read(ROOT / "results" / "geometry.jsonl").items():
        assert len(rows) == SEEDS
        for found, committed in zip(measured[name], rows, strict=True):
            # float32 training differs from machine to machine by less than seeds differ from each other, 0.02
            assert found == pytest.approx(committed, abs=0.02)


def test_the_documentation_shows_the_committed_rows() -> None:
    assert table(read(ROOT / "results" / "geometry.jsonl")) in (ROOT / "docs" / "method.md").read_text()
