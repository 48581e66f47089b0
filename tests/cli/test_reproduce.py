"""`dsui reproduce`: from a grid to a table, whatever stops it on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dsui.cli import app
from dsui.cli.errors import UsageError
from dsui.cli.reproduce_progress import StudyProgress
from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow, read
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import Study
from dsui.runs.folder import CONFIG, WEIGHTS

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


def test_a_second_call_trains_nothing(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any, **__: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("dsui.experiments.cell_run.fit", train)
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
    assert "2/2 msp, digits, small, seed 0: failed: the loss of step" in result.stderr
    markdown = (tmp_path / "study" / "table.md").read_text(encoding="utf-8")
    (line,) = [line for line in markdown.splitlines() if line.startswith("| msp")]
    assert line.replace(" ", "") == "|msp|-|-|-|"
    assert "Failed: msp, digits, small, seed 0: the loss of step" in markdown
    assert "failed" in reproduce(tmp_path / "grid.yaml", "--out", tmp_path / "study", "--dry-run").stdout


def test_a_process_that_dies_fails_its_cells_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    result = reproduce(grid_file(tmp_path), "--out", tmp_path / "study", "--workers", 2)
    assert result.exit_code == 1
    assert result.stderr.count("failed: its process ended with status 1; its log is in") == 2


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
    with StudyProgress(study, [first, second], collects=True, quiet=True) as progress:
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
    assert "to do         msp, digits, small, seed 0  training: unknown" in fresh.stdout
    assert "2 cells: 2 to do." in fresh.stdout
    assert "still to come: 2 runs of unknown length, unlike any timed so far. Evaluation comes on top." in fresh.stdout
    assert not (tmp_path / "none").exists()
    longer = grid_file(tmp_path, epochs=4000, text=GRID.replace("[msp, dsui]}", "msp, set: {epochs: 2}}\n  - {}"))
    there = reproduce(longer, "--out", alone / "study", "--dry-run")
    assert "done          msp" in there.stdout
    assert "Training still to come: about " in there.stdout


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
    for name in ("accuracy", "ood-pairs", "tsne"):
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
