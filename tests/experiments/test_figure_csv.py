"""The points that runs leave for a figure."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch

from dsui.data.registry import load
from dsui.experiments import figure_points
from dsui.experiments.study import Study
from dsui.experiments.study_figures import draw_distributions, draw_embeddings, draw_study
from dsui.experiments.study_table import figure_csv
from dsui.runs.model import load_model, run_facts
from tests.support.tiny_grid import run_study, tiny_study

FIGURE = """
title: Figure
figure: %s
data: digits
backbone: small
recipe: demo
set: {epochs: 2}
seeds: [0]
tasks: [ood]
foreign: [photos]
runs:
  - {method: dsui}
"""


def test_distributions_are_the_moments_of_probabilities_and_entropies(tmp_path: Path) -> None:
    study = Study(tiny_study(tmp_path, FIGURE % "distributions").grid, tmp_path)
    (cell,) = run_study(study)
    points = list(csv.DictReader(figure_csv(study, None).splitlines()))
    rows = [point for point in points if point["score"]]
    assert len(rows) == 4 * 11  # Max.P. and Ent. of two streams, ten digits and the photographs
    assert {row["x"] for row in rows if row["foreign"] == "1"} == {"photos"}
    model = load_model(run_facts(study.run_path(cell)), torch.device("cpu"))
    test = load("digits", "test")
    with torch.no_grad():
        p = model.method.predict(model.transform.plain(test.read(torch.arange(797)))).logits.double().softmax(1)
    sevens = p[test.labels == 7]
    entropies = torch.distributions.Categorical(sevens).entropy()
    for score, values in (("max_probability", sevens.amax(1)), ("entropy", entropies)):
        (row,) = [row for row in rows if (row["x"], row["score"]) == ("7", score)]
        assert int(row["images"]) == len(sevens)
        # float32 networks in batches of 500 and of 797
        assert float(row["mean"]) == pytest.approx(values.mean().item(), abs=1e-4)
        assert float(row["deviation"]) == pytest.approx(values.std().item(), abs=1e-4)

    profiles = [point for point in points if point["image"]]
    assert [(point["image"], point["x"]) for point in profiles] == [
        (image, str(digit)) for image in ("in-domain", "photos") for digit in range(10)
    ]
    with torch.no_grad():
        outputs = model.method.predict(model.transform.plain(test.read(torch.arange(797))))
    assert outputs.log_joint is not None
    right = outputs.logits.argmax(1) == test.labels
    densest = outputs.log_joint[right].logsumexp(1).argmax()
    expected = outputs.log_joint[right][densest].tolist()
    # densities of hundreds of nats, of a network in batches of 500 and of 797
    assert [float(point["log_density"]) for point in profiles[:10]] == pytest.approx(expected, abs=0.01)

    from_study, from_csv = draw_study(study), draw_distributions(points, study.grid.title)
    assert [drawing.name for drawing in from_study] == ["figure", "profile"]
    assert [drawing.description for drawing in from_csv] == [drawing.description for drawing in from_study]
    assert [axes.get_xlabel() for axes in from_study[0].figure.axes] == [
        "largest probability",
        "entropy (nats)",
        "largest probability of the mixtures",
        "entropy of the mixtures (nats)",
    ]
    assert from_study[0].figure.axes[1].get_xlim() == pytest.approx((0, math.log(10)))
    photos = next(row for row in rows if row["x"] == "photos")
    assert f"photos {float(photos['mean']):.3g} ± {float(photos['deviation']):.3g}" in from_study[0].description


def test_the_embedding_places_own_images_alone_and_with_foreign_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_points, "EMBEDDED", 100)
    study = Study(tiny_study(tmp_path, FIGURE % "embedding").grid, tmp_path)
    run_study(study)
    rows = list(csv.DictReader(figure_csv(study, None).splitlines()))
    (drawing,) = draw_study(study)
    assert drawing.description == draw_embeddings("figure", rows, study.grid.title).description
    assert [axes.get_title() for axes in drawing.figure.axes] == ["dsui", "dsui with foreign images"]
    own, both = ([row for row in rows if row["panel"] == panel] for panel in ("own", "with foreign"))
    assert {row["class"] for row in own} == set("0123456789")
    assert {row["class"] for row in both} == {*"0123456789", "photos"}
    assert len(both) == len(own) + sum(row["class"] == "photos" for row in both)
    digits, photos = (
        torch.tensor([[float(row["x"]), float(row["y"])] for row in both if (row["class"] == "photos") is foreign])
        for foreign in (False, True)
    )
    assert bool(torch.isfinite(torch.cat([digits, photos])).all())
    # a photograph's nearest neighbour is mostly a photograph: the net was trained on digits for two epochs
    distances = torch.cdist(photos, torch.cat([photos, digits]))
    distances[:, : len(photos)].fill_diagonal_(torch.inf)
    assert (distances.argmin(1) < len(photos)).float().mean() > 0.8
