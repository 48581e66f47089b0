"""Studies: done cells are not run again, stopped and failed ones harm no others, and the table is the paper's."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsui.evaluation.results import ResultRow, read
from dsui.experiments import cell_run
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import parse_grid
from dsui.experiments.study import State, Study
from dsui.experiments.study_table import study_table
from dsui.training.loop import InterruptedRun
from dsui.training.reporter import SilentReporter
from tests.support.tiny_grid import CONTEXT, TINY, figures, rkl_reads_msp, row_of, run_study, tiny_study  # noqa: F401


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = tiny_study(tmp_path_factory.mktemp("finished"))
    run_study(study)
    study.collect()
    return study


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any, **__: Any) -> None:
        raise AssertionError("a run was trained that is there already")

    monkeypatch.setattr(cell_run, "fit", train)


def accuracy_of(cell: Cell) -> ResultRow:
    return row_of(cell, "accuracy", "prediction", None, {"accuracy": 0.9})


def test_a_study_runs_end_to_end_and_a_second_time_nothing(finished: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, problems = read([finished.out / "results.jsonl"])
    assert not problems
    assert {row.method for row in rows} == {"msp", "rkl", "dsui"}
    assert {finished.state(cell) for cell in finished.grid.cells} == {State("done")}
    forbid_training(monkeypatch)
    assert tiny_study(finished.out).jobs(finished.grid.cells) == []
    assert run_study(tiny_study(finished.out)) == []


def test_rows_of_changed_recipes_can_be_told_apart(finished: Study) -> None:
    assert {row.recipe for row in finished.collect()} == {"demo, epochs=2"}


def test_a_method_that_shares_weights_is_not_trained(finished: Study) -> None:
    assert len(list(finished.runs.iterdir())) == 2
    by_method = {row.method: row.run for row in finished.collect()}
    assert by_method["msp"] == by_method["rkl"]


def test_a_changed_evaluation_trains_nothing_and_a_changed_run_only_itself(
    finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_more = Study(tiny_study(tmp_path, TINY.replace("dsui}", "dsui, seeds: [0, 1]}")).grid, finished.out)
    (job,) = one_more.jobs(one_more.grid.cells)
    assert [(cell.predictor, cell.config.seed) for cell in job] == [("dsui", 1)]
    forbid_training(monkeypatch)
    text = TINY.replace("[misclassification]", "[misclassification, ood]") + "foreign: [photos]"
    asked_more = Study(tiny_study(tmp_path, text).grid, tmp_path, runs=finished.runs)
    assert {asked_more.state(cell).kind for cell in asked_more.grid.cells} == {"trained"}
    assert len(run_study(asked_more)) == 3
    assert {row.foreign for row in asked_more.collect()} == {None, "photos"}


def test_a_stopped_run_is_half_done_and_goes_on_to_the_same_figures(finished: Study, tmp_path: Path) -> None:
    class Impatient(SilentReporter):
        def epoch(self, row: dict[str, object]) -> None:
            if row["epoch"] == 0:
                os.kill(os.getpid(), signal.SIGINT)

    study = tiny_study(tmp_path)
    with pytest.raises(InterruptedRun):
        run_study(study, replace(CONTEXT, reporter=Impatient()))
    assert study.state(study.grid.cells[0]) == State("half-done", "step 15 of 30")  # 1,000 digits in batches of 64
    assert [study.state(cell).kind for cell in study.grid.cells] == ["half-done", "half-done", "to do"]
    assert "Cells not done yet: 3 of 3." in study_table(study, quoted=False).note
    run_study(study)
    assert "not done yet" not in study_table(study, quoted=False).note
    assert figures(study.collect()) == figures(finished.collect())


def test_detectors_of_a_grid_score_beside_the_runs_own_scores(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, TINY.replace("[misc", "[ood, misc") + "foreign: [photos]\ndetectors: [knn]\n")
    run_study(study)
    found = {row.score: row.metrics["auroc"] for row in study.collect() if (row.method, row.task) == ("dsui", "ood")}
    assert 0.5 < found["knn"] < 1
    assert found["knn"] != found["max_probability"]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        '{"rows": [',
        "[]",
        '{"rows": null, "points": []}',
        '{"rows": [], "points": []}',
        '{"rows": [{"a": 1}], "points": []}',
        '{"rows": [5], "points": []}',
        '{"error": 5}',
    ],
)
def test_a_cell_whose_file_is_damaged_is_evaluated_again_without_training(
    finished: Study, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    before = figures(finished.collect())
    forbid_training(monkeypatch)
    cell = finished.grid.cells[0]
    finished.cell_path(cell).write_text(damage)
    assert finished.state(cell) == State("trained")
    assert finished.result(cell) == ([], [])
    run_study(finished)
    assert figures(finished.collect()) == before


def test_steps_run_as_the_conditions_say(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    run_study(study, replace(CONTEXT, mode="graph"))
    for cell in study.grid.cells:
        assert study.state(cell).kind == "failed"
        assert "a CUDA graph needs one process on a GPU" in study.state(cell).detail


def test_a_failing_run_is_written_down_and_the_others_finish(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, TINY.replace("as: [msp, rkl]", "as: [msp, rkl], set: {epochs: 2, peak_rate: 1.0e+30}"))
    assert len(run_study(study)) == 3
    states = {cell.predictor: study.state(cell) for cell in study.grid.cells}
    assert states["dsui"] == State("done")
    assert states["msp"].kind == states["rkl"].kind == "failed"
    assert "is not a number" in states["msp"].detail
    table = study_table(study, quoted=False)
    assert [line.label for line in table.lines] == ["msp", "rkl", "dsui"]
    assert [line.cells[0].mean is None for line in table.lines] == [True, True, False]
    assert "Failed: msp, digits, small, seed 0 and 1 more: the loss of step" in table.note
    assert len(study.jobs(study.grid.cells)) == 1  # to be tried again


def test_a_cell_that_another_process_has_done_meanwhile_does_not_fail(finished: Study) -> None:
    cell = finished.grid.cells[0]
    finished.fail(cell, "its machine was slower")
    assert finished.state(cell) == State("done")


def test_no_evaluation_begins_after_the_end_of_the_time_and_the_run_stays_trained(
    finished: Study, tmp_path: Path
) -> None:
    again = Study(finished.grid, tmp_path, runs=finished.runs)
    with pytest.raises(InterruptedRun, match="the time is over before the evaluation of msp, digits"):
        run_study(again, replace(CONTEXT, ends_at=0.0))
    assert {again.state(cell).kind for cell in again.grid.cells} == {"trained"}


def test_an_error_that_nobody_foresaw_fails_its_cell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(cell: Cell, *_: Any) -> None:
        if cell.config.method == "msp":
            raise RuntimeError("CUDA error: misaligned address\nand many more lines")

    monkeypatch.setattr("dsui.experiments.study.train", train)
    monkeypatch.setattr(
        "dsui.experiments.study.evaluate", lambda cell, *_: cell_run.CellResult([accuracy_of(cell)], [])
    )
    study = tiny_study(tmp_path)
    run_study(study)
    assert study.state(study.grid.cells[0]) == State("failed", "RuntimeError: CUDA error: misaligned address")
    assert "many more lines" in study.record(study.grid.cells[0])["traceback"]
    assert study.state(study.grid.cells[2]) == State("done")


def test_cells_without_data_wait_and_the_others_run(tmp_path: Path) -> None:
    text = TINY.replace("dsui}", "dsui, data: cifar10, backbone: resnet18, tasks: [ood], foreign: [svhn, photos]}")
    study = tiny_study(tmp_path, text, root=tmp_path / "data")
    assert study.state(study.grid.cells[2]) == State("data missing", "cifar10, svhn")
    assert [cell.predictor for job in study.jobs(study.grid.cells) for cell in job] == ["msp", "rkl"]
    assert "Without cifar10, svhn: dsui, cifar10, resnet18, seed 0." in study_table(study, quoted=False).note


def test_a_study_that_holds_images_out_is_scored_on_them_and_on_images_made_from_them(tmp_path: Path) -> None:
    grid = parse_grid(
        """
        title: Selection
        data: digits
        backbone: small
        recipe: demo
        method: msp
        seeds: [0]
        held_out: 0.2
        set: {epochs: 1}
        tasks: [misclassification, ood]
        foreign: [blends]
        runs: [{}]
        table: [{task: accuracy, metrics: accuracy, scores: prediction}]
        """,
        "selection",
    )
    study = Study(grid, tmp_path)
    run_study(study)
    rows = study.collect()
    assert {(row.protocol or "").split()[-1] for row in rows} == {"held-out"}
    assert {row.foreign for row in rows if row.task == "ood"} == {"blends"}
    assert {row.n_negative for row in rows if row.task == "ood"} == {200}


def test_own_images_nobody_has_split_and_foreign_ones_in_any_folder_are_data_that_is_there(tmp_path: Path) -> None:
    for name in ("mine/ant/1.png", "mine/bee/1.png", "others/deep/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    text = TINY.replace("data: digits", f"data: 'folder:{tmp_path / 'mine'}'").replace("[misc", "[ood, misc")
    there = tiny_study(tmp_path / "study", text + f"foreign: ['folder:{tmp_path / 'others'}']\n")
    assert there.missing_data(there.grid.cells[0]) == ()
    gone = tiny_study(tmp_path / "study", text + f"foreign: ['folder:{tmp_path / 'gone'}']\n")
    assert gone.missing_data(gone.grid.cells[0]) == (f"folder:{tmp_path / 'gone'}",)


def test_a_study_of_own_images_leaves_unreadable_files_out_where_its_grid_says_so(tmp_path: Path) -> None:
    for split, label, number in product(("train", "test"), range(2), range(20)):
        file = tmp_path / "mine" / split / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 50).save(file)
    for split in ("train", "test"):
        (tmp_path / "mine" / split / "1" / "7.png").write_bytes(b"no image")
    text = TINY.replace("digits", f"'folder:{tmp_path / 'mine'}'").replace("epochs: 2", "epochs: 2, batch: 8")
    failed = tiny_study(tmp_path / "a", text)
    run_study(failed)
    assert {failed.state(cell).kind for cell in failed.grid.cells} == {"failed"}
    assert "in grids: skip_bad" in failed.state(failed.grid.cells[0]).detail
    study = tiny_study(tmp_path / "b", text + "skip_bad: true\nsize: 8\nchannels: 1\n")
    run_study(study)
    assert {study.state(cell) for cell in study.grid.cells} == {State("done")}
    asked = [row for row in study.collect() if row.task == "misclassification"]
    assert {(row.n_positive or 0) + (row.n_negative or 0) for row in asked} == {39}
