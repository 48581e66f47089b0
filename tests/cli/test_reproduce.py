"""`dsui reproduce`: from a grid to a table, whatever stops it on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dsui.cli import app
from dsui.cli.errors import UsageError
from dsui.cli.reproduce_progress import StudyProgress
from dsui.errors import DsuiError, Stopped
from dsui.evaluation.results import ResultRow, read
from dsui.experiments import PAPER_GRIDS, cell_run
from dsui.experiments.grid_file import load_grid
from dsui.experiments.speeds import Machine, read_speeds
from dsui.experiments.study import Study
from dsui.runs.folder import CONFIG, WEIGHTS, RunFolder

GRID = """
title: Two methods on digits
data: digits
backbone: small
recipe: demo
set: {epochs: %d}
seeds: [0]
tasks: [misclassification]
runs:
  - {method: [msp, dsui]}
table:
  - {task: accuracy, metrics: accuracy, scores: prediction}
  - {task: misclassification, metrics: auroc, scores: [max_probability, entropy]}
"""
runner = CliRunner()


def reproduce(*arguments: object) -> Any:
    return runner.invoke(app, ["reproduce", *map(str, arguments)])


def grid_file(folder: Path, epochs: int = 2, text: str = GRID) -> Path:
    path = folder / "grid.yaml"
    path.write_text(text % epochs, encoding="utf-8")
    return path


def figures(out: Path) -> list[tuple[object, ...]]:
    """All but times."""
    rows, problems = read([out / "results.jsonl"])
    assert not problems
    return [(row.run, row.task, row.score, _untimed(row)) for row in rows]


def _untimed(row: ResultRow) -> dict[str, float]:
    return {name: value for name, value in row.metrics.items() if name != "seconds_per_1000"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study carried out by one process."""
    folder = tmp_path_factory.mktemp("alone")
    result = reproduce(grid_file(folder), "--out", folder / "study", "--device", "cpu")
    assert result.exit_code == 0
    return folder


def test_a_study_ends_in_a_table_in_four_forms_and_says_how_far_it_is(alone: Path) -> None:
    result = reproduce(alone / "grid.yaml", "--out", alone / "study", "--format", "csv")
    assert result.exit_code == 0
    assert result.stdout == (alone / "study" / "table.csv").read_text(encoding="utf-8")
    assert "Two methods on digits" in (alone / "study" / "table.md").read_text(encoding="utf-8")
    assert r"\begin{tabular}" in (alone / "study" / "table.tex").read_text(encoding="utf-8")


def test_a_study_of_a_figure_draws_it_and_says_where_or_what_is_missing(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = "[auroc, aupr], scores: [max_probability, entropy]"
    text = GRID.replace("auroc, scores: [max_probability, entropy]", four) + "figure: curve\n"
    grid, out = grid_file(tmp_path, text=text), tmp_path / "study"
    shutil.copytree(alone / "study", out)  # the cells are those of the same study without a figure
    result = reproduce(grid, "--out", out, "--device", "cpu")
    assert result.exit_code == 0
    assert f"It is drawn in {out / 'figure.svg'}, and as PNG beside it." in result.stderr
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "dsui, mixtures" in (out / "figure.svg").read_text(encoding="utf-8")
    monkeypatch.setattr("dsui.cli.reproduce_output.DRAWS_WITH", "a_missing_package")
    again = reproduce(grid, "--out", out, "--device", "cpu", "--quiet")
    assert again.exit_code == 0
    loud = reproduce(grid, "--out", out, "--device", "cpu")
    assert "It is not drawn, because a_missing_package is missing: pip install a_missing_package" in loud.stderr
    listed = json.loads(reproduce(grid, "--out", out, "--device", "cpu", "--json").stdout)
    assert [Path(name).name for name in listed["files"]] == ["table.md", "table.tex", "table.csv", "figure.csv"]


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any, **__: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("dsui.experiments.cell_run.fit", train)


def test_a_second_call_trains_nothing(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_training(monkeypatch)
    before = {path: path.stat().st_mtime_ns for path in (alone / "study" / "runs").rglob("*")}
    result = reproduce(alone / "grid.yaml", "--out", alone / "study")
    assert result.exit_code == 0
    assert "msp" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in (alone / "study" / "runs").rglob("*")} == before


def test_two_workers_give_the_rows_of_one(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in this process: sums depend on the number of threads
    result = reproduce(alone / "grid.yaml", "--out", tmp_path, "--workers", 2, "--device", "cpu")
    assert result.exit_code == 0
    assert {line[0] for line in result.stderr.splitlines()} == {"1", "2"}
    assert figures(tmp_path) == figures(alone / "study")
    assert len(list((tmp_path / "logs").iterdir())) == 2


def test_a_killed_study_goes_on_and_ends_with_the_same_rows(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = alone / "grid.yaml"
    study = Study(load_grid(str(path)), tmp_path)
    first, second = study.grid.cells
    arguments = ["reproduce", str(path), "--out", str(study.out), "--device", "cpu"]
    process = subprocess.Popen([sys.executable, "-m", "dsui", *arguments], stderr=subprocess.DEVNULL)
    try:
        while not (study.done(first) and (study.run_path(second) / CONFIG).exists()):
            assert process.poll() is None, "ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not study.done(second)
    trained = (study.run_path(first) / WEIGHTS).stat().st_mtime_ns
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0].startswith("1/1 dsui, digits, small, seed 0: ")
    assert (study.run_path(first) / WEIGHTS).stat().st_mtime_ns == trained
    assert figures(study.out) == figures(alone / "study")


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dsui.experiments.study.evaluate", stop)
    result = reproduce(grid_file(tmp_path, epochs=1), "--out", tmp_path / "study", "--device", "cpu")
    assert result.exit_code == 1
    assert isinstance(result.exception, DsuiError)
    assert "stopped with 0 of 2 cells done and nothing lost; the same command continues" in str(result.exception)


def test_a_failed_cell_is_named_shown_as_a_dash_and_the_exit_status(tmp_path: Path) -> None:
    text = GRID.replace("[msp, dsui]}", "dsui}\n  - {method: msp, set: {epochs: 1, peak_rate: 1.0e+30}}")
    result = reproduce(grid_file(tmp_path, 1, text), "--out", tmp_path / "study", "--device", "cpu")
    assert result.exit_code == 1
    assert "/2 msp, digits, small, seed 0: failed: the loss of step" in result.stderr
    markdown = (tmp_path / "study" / "table.md").read_text(encoding="utf-8")
    (line,) = [line for line in markdown.splitlines() if line.startswith("| msp")]
    assert line.replace(" ", "") == "|msp|-|-|-|"
    assert "Failed: msp, digits, small, seed 0: the loss of step" in markdown
    assert "failed" in reproduce(tmp_path / "grid.yaml", "--out", tmp_path / "study", "--dry-run").stdout


def test_a_process_that_dies_fails_its_cells_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    result = reproduce(grid_file(tmp_path), "--out", tmp_path / "study", "--workers", 2)
    assert result.exit_code == 1
    assert result.stderr.count(f"failed: its process ended with status 1; its log is {tmp_path}") == 2


def test_what_a_process_said_last_is_the_reason_why_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speaking = tmp_path / "python"
    speaking.write_text("#!/bin/sh\necho Traceback\necho 'ImportError: no such thing'\nexit 1\n")
    speaking.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(speaking))
    result = reproduce(grid_file(tmp_path), "--out", tmp_path / "study", "--workers", 2)
    assert result.stderr.count("ended with status 1 (ImportError: no such thing); its log is ") == 2


def test_a_process_that_dies_is_not_excused_with_the_reason_of_an_earlier_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(load_grid(str(grid_file(tmp_path))), tmp_path / "study")
    for cell in study.grid.cells:
        study.fail(cell, "its loss was no number.")
    monkeypatch.setattr(sys, "executable", "false")
    result = reproduce(tmp_path / "grid.yaml", "--out", study.out, "--workers", 2)
    assert result.stderr.count("failed: its process ended with status 1") == 2
    assert "its loss was no number" not in result.stderr


def test_what_ray_says_of_a_lost_process_is_the_reason_of_its_cells(tmp_path: Path) -> None:
    study = Study(load_grid(str(grid_file(tmp_path))), tmp_path / "study")
    first, second = study.jobs(study.grid.cells)
    with StudyProgress(study, 2, Machine("cpu"), quiet=True) as progress:
        progress.job_finished(first, 1.0, "Ray lost its process.")
        progress.job_finished(second, 1.0, -9)
    assert [study.state(job[0]).detail.split(";")[0] for job in (first, second)] == [
        "Ray lost its process.",
        "its process ended with status -9",
    ]


def test_one_cell_is_counted_in_the_singular(tmp_path: Path) -> None:
    grid = grid_file(tmp_path)
    listed = reproduce(grid, "--out", tmp_path / "study", "--only", "method=msp", "--dry-run")
    assert "\n1 cell: 1 to do." in listed.stdout
    written = reproduce(grid, "--out", tmp_path / "study", "--only", "method=msp", "--engine", "slurm")
    assert "holds 1 task. " in written.stdout


def test_own_images_that_are_missing_are_not_to_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    grid = grid_file(tmp_path, text=GRID.replace("data: digits", "data: 'folder:mine'"))
    listed = reproduce(grid, "--out", tmp_path / "study", "--dry-run")
    assert f"2 cells need folder:mine: put your images into {tmp_path / 'mine'} or correct its name" in listed.stdout
    assert "data get" not in listed.stdout
    key = load_grid(str(grid)).cells[0].key
    refused = reproduce(grid, "--out", tmp_path / "study", "--cell", key)
    assert f"needs folder:mine, which is not here; put your images into {tmp_path / 'mine'}" in str(refused.exception)


@pytest.mark.parametrize("option", ["--out", "--runs"])
@pytest.mark.parametrize("key", ["data", "outliers"])
def test_a_study_among_the_images_would_be_a_class_and_is_refused(tmp_path: Path, option: str, key: str) -> None:
    (tmp_path / "mine" / "ant").mkdir(parents=True)
    images = f"'folder:{tmp_path / 'mine'}'"
    own = GRID.replace("data: digits", f"data: {images}")
    text = own if key == "data" else GRID.replace("[msp, dsui]", f"rkl, outliers: {images}")
    paths = {"--out": tmp_path / "study", "--runs": tmp_path / "runs", option: tmp_path / "mine" / "bee"}
    words = [word for pair in paths.items() for word in pair]
    refused = reproduce(grid_file(tmp_path, text=text), *words, "--dry-run").exception
    assert isinstance(refused, UsageError)
    assert f"{option} {tmp_path / 'mine' / 'bee'} lies among the images of folder:{tmp_path / 'mine'};" in str(refused)
    words[words.index(option) + 1] = tmp_path / "elsewhere"
    assert reproduce(tmp_path / "grid.yaml", *words, "--dry-run").exit_code == 0


def test_a_dry_run_lists_states_and_time_and_touches_nothing(alone: Path, tmp_path: Path) -> None:
    fresh = reproduce(alone / "grid.yaml", "--out", tmp_path / "none", "--dry-run")
    assert fresh.exit_code == 0
    assert "to do         msp, digits, small, seed 0  training: about " in fresh.stdout
    assert "2 cells: 2 to do." in fresh.stdout
    assert "Still to come on this CPU:\n  msp: about " in fresh.stdout
    assert " s on this CPU, with start and evaluation.\n" in fresh.stdout
    assert not (tmp_path / "none").exists()
    longer = grid_file(tmp_path, epochs=4000, text=GRID.replace("[msp, dsui]}", "msp, set: {epochs: 2}}\n  - {}"))
    there = reproduce(longer, "--out", alone / "study", "--dry-run")
    assert "done          msp" in there.stdout
    assert "Still to come: about " in there.stdout


def test_a_dry_run_says_whose_speed_it_takes_and_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = grid_file(tmp_path, text=GRID.replace("data: digits\nbackbone: small", "data: cifar10\nbackbone: vgg16"))
    here = reproduce(path, "--out", tmp_path / "none", "--root", tmp_path, "--dry-run").stdout
    assert "Still to come: 2 runs of unknown length on this CPU" in here
    assert "The times on a GPU are estimated with --device cuda." in here
    gpu = reproduce(path, "--out", tmp_path / "none", "--root", tmp_path, "--dry-run", "--device", "cuda").stdout
    assert "Still to come on one NVIDIA H200:\n  msp: about " in gpu
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA Z9")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    other = reproduce(path, "--out", tmp_path / "none", "--root", tmp_path, "--dry-run", "--workers", "6").stdout
    assert " on one NVIDIA Z9, about " in other
    assert " on 2 of them, with start and evaluation.\n" in other
    assert "NVIDIA Z9 was not measured for all of them; some times are those of NVIDIA H200." in other


def test_rows_of_another_machine_are_the_study_without_any_training(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    rows = tmp_path / "rows" / "theirs.jsonl"
    rows.parent.mkdir()
    rows.write_bytes((alone / "study" / "results.jsonl").read_bytes())
    listed = reproduce(alone / "grid.yaml", "--out", tmp_path / "here", "--results", rows, "--dry-run")
    assert "2 cells: 2 done." in listed.stdout
    result = reproduce(alone / "grid.yaml", "--out", tmp_path / "here", "--results", rows.parent)
    assert result.exit_code == 0
    for name in ("table.md", "table.csv"):
        assert (tmp_path / "here" / name).read_text() == (alone / "study" / name).read_text()
    assert not (tmp_path / "here" / "runs").exists()
    refused = reproduce(alone / "grid.yaml", "--out", tmp_path / "here", "--results", tmp_path / "none")
    assert "none is missing; name results rows" in str(refused.exception)


def test_rows_of_each_cell_are_kept_at_once_and_are_all_that_another_call_needs(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, counts = tmp_path / "rows.jsonl", []
    evaluated = cell_run.evaluate

    def evaluate(*arguments: Any) -> Any:
        counts.append(len(kept.read_bytes().splitlines()) if kept.exists() else 0)
        return evaluated(*arguments)

    monkeypatch.setattr("dsui.experiments.study.evaluate", evaluate)
    command = (alone / "grid.yaml", "--rows", kept, "--runs", alone / "study" / "runs")
    assert reproduce(*command, "--out", tmp_path / "first").exit_code == 0
    before = kept.read_bytes()
    assert counts[0] == 0 < counts[1] < len(before.splitlines())
    assert reproduce(*command, "--out", tmp_path / "second", "--workers", 2).exit_code == 0
    assert kept.read_bytes() == before
    assert not (tmp_path / "second" / "cells").exists()


def test_time_that_is_over_begins_nothing_and_shows_what_there_is(alone: Path, tmp_path: Path) -> None:
    result = reproduce(alone / "grid.yaml", "--out", tmp_path / "study", "--minutes", "0")
    assert result.exit_code == 1
    assert isinstance(result.exception, DsuiError)
    assert str(result.exception).startswith("the time of 0 minutes is over (2 to do); ")
    assert "Two methods on digits" in result.stdout
    assert not (tmp_path / "study" / "runs" / CONFIG).exists()
    assert reproduce(alone / "grid.yaml", "--out", alone / "study", "--minutes", "0").exit_code == 0
    refused = reproduce(alone / "grid.yaml", "--engine", "slurm", "--minutes", "5").exception
    assert isinstance(refused, UsageError)


def test_a_run_that_is_too_long_for_the_time_stops_at_a_checkpoint_and_the_next_call_continues(tmp_path: Path) -> None:
    long = grid_file(tmp_path, epochs=4000)
    began = time.monotonic()
    result = reproduce(long, "--out", tmp_path / "study", "--device", "cpu", "--minutes", 0.05, "--only", "method=msp")
    assert time.monotonic() - began < 20
    assert str(result.exception).startswith("the time of 0.05 minutes is over (1 half-done); ")
    study = Study(load_grid(str(long)), tmp_path / "study")
    cell = study.grid.cells[0]
    before = RunFolder.read_state(study.run_path(cell), "cpu")
    stopped = reproduce(long, "--out", study.out, "--device", "cpu", "--cell", cell.key, "--stop-at", time.time() + 0.5)
    assert isinstance(stopped.exception, Stopped)
    after = RunFolder.read_state(study.run_path(cell), "cpu")
    assert before is not None
    assert after is not None
    assert after["steps"] > before["steps"]
    assert study.state(cell).kind == "half-done"


def test_a_stopped_process_is_not_a_failed_one(tmp_path: Path) -> None:
    study = Study(load_grid(str(grid_file(tmp_path))), tmp_path / "study")
    (job, _) = study.jobs(study.grid.cells)
    with StudyProgress(study, 2, Machine("cpu"), quiet=True) as progress:
        progress.job_finished(job, 1.0, 130)
    assert study.state(job[0]).kind == "to do"


def test_two_studies_do_not_share_runs_at_once(alone: Path, tmp_path: Path) -> None:
    study = Study(load_grid(str(alone / "grid.yaml")), tmp_path / "first")
    with study.lead():
        refused = reproduce(alone / "grid.yaml", "--out", tmp_path / "second", "--runs", study.runs).exception
        assert isinstance(refused, DsuiError)
        assert f"the runs in {study.runs} are in use by the study of process {os.getpid()}; wait" in str(refused)
        assert reproduce(alone / "grid.yaml", "--out", alone / "study", "--runs", study.runs).exit_code == 0  # all done


def test_speeds_of_runs_are_kept_for_the_next_estimate(alone: Path) -> None:
    measured = read_speeds(alone / "study" / "results.speeds")
    assert {(speed.device, speed.backbone, speed.method, speed.size) for speed in measured} == {
        ("cpu", "small", "msp", 8),
        ("cpu", "small", "dsui", 8),
    }


def test_own_images_without_test_images_are_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    for label in ("ant", "bee"):
        (tmp_path / "mine" / "train" / label).mkdir(parents=True)
    text = GRID.replace("data: digits", f"data: 'folder:{tmp_path / 'mine'}'")
    result = reproduce(grid_file(tmp_path, text=text), "--out", tmp_path / "study")
    assert result.exit_code == 1
    why = f"2 cells need folder:{tmp_path / 'mine'}: {tmp_path / 'mine'} has no folder test, so add one, or write"
    assert f"{why} held_out: 0.1 in the grid" in result.stderr
    study = Study(load_grid(str(grid_file(tmp_path, text=text + "held_out: 0.1\n"))), tmp_path / "study")
    assert {study.state(cell).kind for cell in study.grid.cells} == {"to do"}


def test_all_grids_of_the_paper_are_listed_with_their_states(tmp_path: Path) -> None:
    listed = reproduce("all", "--out", tmp_path / "study", "--root", tmp_path, "--dry-run", "--device", "cuda")
    assert listed.exit_code == 0
    lines = listed.stdout.splitlines()
    assert [line.split()[0] for line in lines[: len(PAPER_GRIDS)]] == list(PAPER_GRIDS)
    assert all("cells: " in line and " data missing; about " in line for line in lines[: len(PAPER_GRIDS)])
    assert lines[len(PAPER_GRIDS) + 1].startswith("Still to come: about ")


def test_all_grids_share_runs_and_are_drawn_from_rows_without_training(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    (grid,) = [load_grid(str(alone / "grid.yaml"))]
    both = (replace(grid, name="one"), replace(grid, name="two", cells=grid.cells[1:], title="DS-UI alone"))
    monkeypatch.setattr("dsui.cli.reproduce_cells.paper_grids", lambda: both)
    rows = alone / "study" / "results.jsonl"
    result = reproduce("all", "--out", tmp_path, "--results", rows)
    assert result.exit_code == 0
    assert "DS-UI alone" in result.stdout
    assert (tmp_path / "one" / "table.md").read_text() == (alone / "study" / "table.md").read_text()
    assert (tmp_path / "two" / "table.tex").exists()
    answer = json.loads(reproduce("all", "--out", tmp_path, "--results", rows, "--json").stdout)
    assert len(answer["cells"]) == 2
    assert list(answer["tables"]) == ["one", "two"]
    ordinary = reproduce("all", "--out", tmp_path / "fresh", "--dry-run")
    assert [line.split()[:2] for line in ordinary.stdout.splitlines()[:2]] == [["one", "2"], ["two", "1"]]
    assert "\n2 cells: 2 to do." in ordinary.stdout


def test_a_study_is_kept_apart_from_the_code_unless_told_otherwise(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = json.loads(reproduce(alone / "grid.yaml", "--dry-run", "--json").stdout)
    assert answer["study"] == "reproduced/grid"


def test_missing_data_are_named_with_what_to_do(tmp_path: Path) -> None:
    result = reproduce("fgsm", "--out", tmp_path / "study", "--root", tmp_path, "--device", "cpu")
    assert result.exit_code == 1
    assert f"30 cells need cifar10: dsui data get cifar10 --root {tmp_path}" in result.stderr
    listed = reproduce("fgsm", "--out", tmp_path / "study", "--root", tmp_path, "--dry-run", "--seeds", "0,3")
    assert "12 cells: 12 data missing." in listed.stdout
    assert (tmp_path / "study" / "figure.csv").read_text(encoding="utf-8").startswith("method,quoted,x,")


def test_only_and_seeds_choose_what_is_run(tmp_path: Path) -> None:
    def listed(*options: str) -> Any:
        return reproduce("open-set", "--out", tmp_path, "--root", tmp_path, "--dry-run", *options)

    assert "10 cells: " in listed("--only", "method=mc-dropout").stdout
    assert "14 cells: " in listed("--only", "data=cifar10", "--only", "known=neal-0,neal-3", "--seeds", "0").stdout
    for options, words in (
        (("--only", "method=dsiu"), "did you mean dsui"),
        (("--only", "mehtod=dsui"), "no key of --only 'mehtod'; did you mean method? There are method, data, "),
        (("--seeds", "9"), "no seed in this grid '9'"),
        (("--only", "data=tiny-imagenet", "--only", "known=neal-0"), "no cell fits"),
    ):
        mistake = listed(*options).exception
        assert isinstance(mistake, DsuiError)
        assert words in str(mistake)


def test_slurm_writes_a_script_for_what_is_left_and_submits_nothing(alone: Path, tmp_path: Path) -> None:
    result = reproduce(alone / "grid.yaml", "--out", tmp_path / "study", "--engine", "slurm", "--only", "method=dsui")
    assert result.exit_code == 0
    script = tmp_path / "study" / "study.sbatch"
    assert result.stdout.splitlines()[-1] == f"sbatch {script}"
    (_, cell) = load_grid(str(alone / "grid.yaml")).cells
    text = script.read_text(encoding="utf-8")
    assert f"    {cell.key}  # {cell.name}\n" in text
    assert f"reproduce {alone / 'grid.yaml'} --out {tmp_path / 'study'}" in text
    nothing = reproduce(alone / "grid.yaml", "--out", alone / "study", "--engine", "slurm")
    assert "no cell is left to run" in str(nothing.exception)


def test_a_cell_of_another_grid_is_refused(alone: Path) -> None:
    result = reproduce(alone / "grid.yaml", "--out", alone / "study", "--cell", "0123456789ab")
    assert "grid has no cell 0123456789ab" in str(result.exception)


def test_help_names_the_grids_and_hides_what_is_not_for_people() -> None:
    text = reproduce("--help").output
    assert "Example: dsui reproduce digits" in text
    for name in ("accuracy", "geometry", "tsne"):
        assert name in text
    assert "--cell" not in text


@pytest.mark.parametrize("workers", [1, 2])
def test_how_steps_run_is_passed_on_to_every_process(tmp_path: Path, workers: int) -> None:
    chosen = (
        "--out",
        tmp_path / "study",
        "--device",
        "cpu",
        "--mode",
        "graph",
        "--workers",
        workers,
        "--only",
        "method=msp",
    )
    assert reproduce(grid_file(tmp_path), *chosen, "--workers", workers).exit_code == 1
    listed = reproduce(grid_file(tmp_path), *chosen, "--dry-run").stdout
    assert "a CUDA graph needs one process on a GPU" in " ".join(listed.split())
