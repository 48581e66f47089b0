"""The histograms of the density with doubles: whose they are, and that they are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dsui.data.registry import load
from dsui.report.figures.canvas import to_svg
from dsui.runs.images import held_out_images
from dsui.runs.model import load_model, run_facts
from studies.doubles_density import OTHERS, TURNED, UPRIGHT, drawing, measure
from tests.support.official_files import write_cifar100
from tests.support.tiny_grid import run_study, tiny_study

GRID = """
title: Tiny
data: digits
backbone: small
recipe: demo
set: {epochs: 1, doubles: turns}
held_out: 0.1
seeds: [0]
tasks: [misclassification]
runs:
  - {method: dsui}
table:
  - {task: accuracy, metrics: accuracy, scores: prediction}
"""


def test_own_images_turned_ones_and_foreign_ones_are_counted_under_the_upright_density(tmp_path: Path) -> None:
    study = tiny_study(tmp_path / "study", GRID)
    run_study(study)
    run = study.run_path(study.grid.cells[0])
    write_cifar100(tmp_path)
    groups = {group.images: group for group in measure(run, tmp_path)}
    facts = run_facts(run)
    model, own = load_model(facts, torch.device("cpu")), held_out_images(facts.config, load("digits", "train"))
    total = len(own.labels)
    assert {name: sum(group.counts) for name, group in groups.items()} == {UPRIGHT: total, TURNED: 3 * total, OTHERS: 6}
    pixels = model.transform.plain(own.read(torch.arange(total)))
    with torch.no_grad():
        for name, quarters in ((UPRIGHT, [0]), (TURNED, [1, 2, 3])):
            joint = [model.method.predict(torch.rot90(pixels, quarter, (2, 3))).log_joint for quarter in quarters]
            values = torch.cat([each.double().exp().sum(1).log() for each in joint if each is not None]).numpy()
            assert np.sort(values)[(len(values) - 1) // 2] == pytest.approx(groups[name].median, abs=0.01)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(group._asdict())}\n" for group in groups.values()))
    drawn = drawing(rows)
    assert f"own images {groups[UPRIGHT].median:.0f}, own images, turned" in drawn.description
    assert all(name in to_svg(drawn) for name in groups)
