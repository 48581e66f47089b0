"""The time that a study still needs, estimated from logs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dsui.experiments import estimate
from dsui.experiments.estimate import Estimate
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import load_grid
from dsui.experiments.speeds import Machine, Speed, read_speeds
from dsui.experiments.study import State, Study
from dsui.runs.folder import CONFIG, LOG, STATE, WEIGHTS
from tests.support.tiny_grid import TINY, rkl_reads_msp, tiny_study  # noqa: F401

HERE = Machine("cpu")


def measured(
    method: str, images: float, *, device: str = "cpu", other_seconds: float | None = None, source: str = ""
) -> Speed:
    """Digits on the small net."""
    return Speed(device, "small", method, "auto", 1, 8, 0.0625, images, other_seconds, source)


def log(study: Study, cell: Cell, epochs: int, steps: int, seconds: float) -> None:
    run = study.run_path(cell)
    run.mkdir(parents=True)
    (run / STATE).touch()
    rows = [{"epoch": epoch, "step": (epoch + 1) * steps, "seconds": seconds} for epoch in range(epochs)]
    (run / LOG).write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"epoch": 99, "st', encoding="utf-8")


def training_seconds(study: Study, speeds: Sequence[Speed] = ()) -> list[float | None]:
    found = study.estimates(study.jobs(study.grid.cells), HERE, speeds)
    return [None if each is None else each.training for each in found]


def test_time_is_estimated_from_like_runs_then_from_other_methods_else_unknown(tmp_path: Path) -> None:
    text = TINY.replace("as: [msp, rkl]", "seeds: [0, 1]").replace("{epochs: 2}", "{epochs: 10}")
    study = tiny_study(tmp_path, text)
    jobs = study.jobs(study.grid.cells)
    assert training_seconds(study) == [None] * 3
    half_done, dsui, other_seed = (job[0] for job in jobs)
    log(study, half_done, epochs=4, steps=15, seconds=3.0)
    # 3 s for 15 steps of 64 images; an epoch has 1,000
    expected = [6 * 3.0, 10 * 3.0, 10 * 3.0]
    scaled = pytest.approx([seconds * 1000 / 960 for seconds in expected], rel=1e-12)  # rounding alone
    assert training_seconds(study) == scaled
    log(study, dsui, epochs=1, steps=15, seconds=7.0)
    assert training_seconds(study)[1] == pytest.approx(9 * 7.0 * 1000 / 960, rel=1e-12)
    assert training_seconds(study)[2] == pytest.approx(10 * 3.0 * 1000 / 960, rel=1e-12)  # msp's, not dsui's
    (study.run_path(other_seed) / WEIGHTS).parent.mkdir()
    (study.run_path(other_seed) / WEIGHTS).touch()
    assert training_seconds(study)[2] == 0


def test_a_run_with_doubles_and_sam_tells_how_long_a_plain_one_takes(tmp_path: Path) -> None:
    dear = "{method: msp, set: {doubles: turns, sam: 0.05, optimizer: sgd}, label: dear}"
    study = tiny_study(tmp_path, TINY.replace("{method: msp, as: [msp, rkl]}", dear).replace("dsui", "msp"))
    first, second = (job[0] for job in study.jobs(study.grid.cells))
    log(study, first, epochs=1, steps=15, seconds=8.0)  # two copies, two passes: four times the work
    assert training_seconds(study) == pytest.approx([8.0 * 1000 / 960, 2 * 2.0 * 1000 / 960], rel=1e-12)
    assert (first.label, second.config.recipe.epochs) == ("dear", 2)


def test_a_run_that_was_never_trained_here_takes_the_time_of_a_measured_speed(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, TINY.replace("{epochs: 2}", "{epochs: 10}"))
    speeds = [measured("msp", 500.0, other_seconds=4.0), measured("dsui", 250.0, device="other CPU")]
    assert training_seconds(study, speeds[:1]) == [20.0, 20.0]  # 10 epochs of 1,000 images
    job = study.jobs(study.grid.cells)[0]
    assert study.estimates([job], HERE, speeds[:1]) == [Estimate(20.0, 4.0)]
    assert study.estimates([job], HERE._replace(together=3), speeds[:1]) == [Estimate(60.0, 4.0)]  # they share it
    assert study.estimates([job], HERE._replace(device="H200"), speeds[1:]) == [Estimate(40.0, 30.0, of="other CPU")]


def test_the_speed_of_a_trained_run_is_kept_and_a_resumed_one_is_not(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    cell, *_ = study.grid.cells
    log(study, cell, epochs=4, steps=15, seconds=3.0)
    config = study.run_path(cell) / CONFIG
    config.touch()
    study.note_speed((cell,), HERE, seconds=20.0)  # not trained to its end yet
    (study.run_path(cell) / WEIGHTS).touch()
    os.utime(config, (time.time() - 30, time.time() - 30))  # begun in an earlier call
    study.note_speed((cell,), HERE, seconds=20.0)
    config.touch()
    assert read_speeds(tmp_path / "results.speeds") == []
    study.note_speed((cell,), HERE, seconds=20.0)
    assert read_speeds(tmp_path / "results.speeds") == [
        measured("msp", 320.0, other_seconds=8.0, source="digits, demo")
    ]
    assert study.speeds()[-1].images_per_second == 320.0


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
    cell = study.grid.cells[0]
    log(study, cell, epochs=4, steps=15, seconds=3.0)
    state, seconds = study.state(cell), training_seconds(study)
    path = study.run_path(cell) / LOG
    path.write_bytes(damage + path.read_bytes() + b"\n" + damage)
    assert study.state(cell) == state == State("half-done", "step 60 of 150")
    assert training_seconds(study) == seconds


def test_fewer_classes_and_held_out_images_take_less_time() -> None:
    config = load_grid("open-set").cells[0].config
    assert (config.data, config.known) == ("cifar10", "neal-0")
    assert estimate.count_training_images(config) == 30_000
    assert estimate.count_training_images(replace(config, known="cat,dog", held_out=0.1)) == 9_000
    assert estimate.count_training_images(replace(config, known=None)) == 50_000
    assert estimate.count_training_images(replace(config, data="folder:mine")) is None
