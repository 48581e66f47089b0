"""The time that a study still needs, estimated from logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsui.experiments import estimate
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import State, Study
from dsui.runs.folder import LOG, STATE, WEIGHTS
from tests.support.tiny_grid import TINY, rkl_reads_msp, tiny_study  # noqa: F401


def log(study: Study, cell: Cell, epochs: int, steps: int, seconds: float) -> None:
    run = study.run_path(cell)
    run.mkdir(parents=True)
    (run / STATE).touch()
    rows = [{"epoch": epoch, "step": (epoch + 1) * steps, "seconds": seconds} for epoch in range(epochs)]
    (run / LOG).write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"epoch": 99, "st', encoding="utf-8")


def test_time_is_estimated_from_like_runs_then_from_other_methods_else_unknown(tmp_path: Path) -> None:
    text = TINY.replace("as: [msp, rkl]", "seeds: [0, 1]").replace("{epochs: 2}", "{epochs: 10}")
    study = tiny_study(tmp_path, text)
    jobs = study.jobs(study.grid.cells)
    assert study.training_seconds(jobs) == [None] * 3
    half_done, dsui, other_seed = (job[0] for job in jobs)
    log(study, half_done, epochs=4, steps=15, seconds=3.0)
    # 3 s for 15 steps of 64 images; an epoch has 1,000
    expected = [6 * 3.0, 10 * 3.0, 10 * 3.0]
    scaled = pytest.approx([seconds * 1000 / 960 for seconds in expected], rel=1e-12)  # rounding alone
    assert study.training_seconds(jobs) == scaled
    log(study, dsui, epochs=1, steps=15, seconds=7.0)
    assert study.training_seconds(jobs)[1] == pytest.approx(9 * 7.0 * 1000 / 960, rel=1e-12)
    assert study.training_seconds(jobs)[2] == pytest.approx(10 * 3.0 * 1000 / 960, rel=1e-12)  # msp's, not dsui's
    (study.run_path(other_seed) / WEIGHTS).parent.mkdir()
    (study.run_path(other_seed) / WEIGHTS).touch()
    assert study.training_seconds(jobs)[2] == 0


@pytest.mark.parametrize(
    "damage",
    [
        b"}{\n",
        b"[1, 2]\n",
        b"\xff\xfe\n",
        b'{"epoch": null, "step": "x", "seconds": []}\n',
        b'{"epoch": 9, "step": 0, "seconds": 1.0}\n',
        b'{"epoch": 9, "step": 99, "seconds": NaN}\n',
    ],
)
def test_damaged_lines_of_a_log_are_passed_over(tmp_path: Path, damage: bytes) -> None:
    study = tiny_study(tmp_path, TINY.replace("{epochs: 2}", "{epochs: 10}"))
    cell, jobs = study.grid.cells[0], study.jobs(study.grid.cells)
    log(study, cell, epochs=4, steps=15, seconds=3.0)
    state, seconds = study.state(cell), study.training_seconds(jobs)
    path = study.run_path(cell) / LOG
    path.write_bytes(damage + path.read_bytes() + b"\n" + damage)
    assert study.state(cell) == state == State("half-done", "step 60 of 150")
    assert study.training_seconds(jobs) == seconds


def test_fewer_classes_and_held_out_images_take_less_time() -> None:
    config = load_grid("open-set").cells[0].config
    assert (config.data, config.known) == ("cifar10", "neal-0")
    assert estimate.count_training_images(config) == 30_000
    assert estimate.count_training_images(replace(config, known="cat,dog", held_out=0.1)) == 9_000
    assert estimate.count_training_images(replace(config, known=None)) == 50_000
    assert estimate.count_training_images(replace(config, data="folder:mine")) is None
