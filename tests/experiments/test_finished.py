"""Rows of finished cells: what counts as finished, what does not, and that appending loses and mixes nothing."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow, append, read
from dsui.experiments.cell_run import CellResult
from dsui.experiments.finished import FinishedCells, files_of_rows
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import parse_grid
from dsui.runs.files import wait_for_lock
from tests.support.tiny_grid import row_of

GRID = """
title: Everything
data: digits
backbone: small
recipe: demo
method: msp
seeds: [0]
tasks: [misclassification, ood, noise, fgsm]
foreign: [photos, svhn]
epsilons: [0.1, 0.2]
detectors: [knn]
table: [{task: accuracy, metrics: accuracy, scores: prediction}]
reference: msp
"""
(CELL,) = parse_grid(GRID, "everything").cells
FIGURE = replace(CELL, figure="distributions")
PLACES: list[tuple[str, str | float | None]] = [
    ("misclassification", None),
    ("ood", "photos"),
    ("ood", "svhn"),
    ("noise", "noise"),
    ("fgsm", 0.1),
    ("fgsm", 0.2),
]


def rows(cell: Cell = CELL, value: float = 0.9, weights: str | None = None) -> list[ResultRow]:
    found = [row_of(cell, "accuracy", "prediction", None, {"accuracy": value})]
    found += [
        row_of(cell, task, score, where, {"auroc": value}) for task, where in PLACES for score in ("entropy", "knn")
    ]
    return [replace(row, weights=weights) for row in found]


def finished(path: Path, *found: ResultRow) -> FinishedCells:
    append(path / "rows.jsonl", found)
    return FinishedCells(path / "new.jsonl", [path / "rows.jsonl"])


def test_rows_of_every_task_set_attack_and_detector_make_a_cell_finished(tmp_path: Path) -> None:
    assert finished(tmp_path, *rows()).find(CELL) == CellResult(rows(), [])


@pytest.mark.parametrize("lacking", [*PLACES, "knn"])
def test_a_cell_without_one_of_them_is_not_finished(tmp_path: Path, lacking: object) -> None:
    kept = [row for row in rows() if lacking not in ((row.task, row.foreign), row.score)]
    if lacking == ("misclassification", None):
        kept = [row for row in kept if row.task != "accuracy"]
    assert finished(tmp_path, *kept).find(CELL) is None


def test_rows_of_another_configuration_or_method_do_not_count(tmp_path: Path) -> None:
    found = finished(tmp_path, *rows())
    assert found.find(replace(CELL, config=replace(CELL.config, seed=1))) is None
    assert found.find(replace(CELL, predictor="mc-dropout")) is None
    assert found.find(replace(CELL, tasks=("ood",), foreign=("svhn",), epsilons=(), detectors=())) is not None


def test_of_two_runs_of_one_name_the_last_whole_one_counts_and_they_are_not_mixed(tmp_path: Path) -> None:
    first, second, cut = rows(weights="a"), rows(value=0.8, weights="b"), rows(value=0.7, weights="c")[:3]
    result = finished(tmp_path, *first, *second, *cut).find(CELL)
    assert result is not None
    assert result.rows == second
    again = rows(value=0.6, weights="b")
    result = FinishedCells(tmp_path / "new.jsonl", [finished(tmp_path, *again).sources[0]]).find(CELL)
    assert result is not None
    assert [list(row.metrics.values()) for row in result.rows] == [[0.6]] * len(again)


def test_a_figure_needs_its_points_as_well(tmp_path: Path) -> None:
    points = [{"x": "1", "mean": 0.5}]
    here = FinishedCells(tmp_path / "a.jsonl")
    here.append(FIGURE, CellResult(rows(), points))
    assert FinishedCells(here.kept, [here.kept]).find(FIGURE) == CellResult(rows(), points)
    assert FinishedCells(here.kept, [here.kept]).find(replace(FIGURE, figure="embedding")) is None
    (tmp_path / "a.points").write_bytes(b"")
    assert FinishedCells(here.kept, [here.kept]).find(FIGURE) is None
    assert FinishedCells(here.kept, [here.kept]).find(CELL) == CellResult(rows(), [])


def test_a_torn_or_damaged_line_costs_its_cell_and_no_other(tmp_path: Path) -> None:
    other = replace(CELL, config=replace(CELL.config, seed=1))
    here = FinishedCells(tmp_path / "rows.jsonl")
    here.append(FIGURE, CellResult(rows(), [{"x": 1}]))
    for name in ("rows.jsonl", "rows.points"):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"run": "to')
    here.append(other, CellResult(rows(other), []))
    there = FinishedCells(here.kept, [here.kept])
    assert there.find(FIGURE) is not None
    assert there.find(other) == CellResult(rows(other), [])


def test_a_cell_is_appended_when_no_other_process_is_appending_one(tmp_path: Path) -> None:
    kept = FinishedCells(tmp_path / "rows.jsonl")
    thread = threading.Thread(target=kept.append, args=(CELL, CellResult(rows(), [])))
    with wait_for_lock(tmp_path / ".rows.jsonl.lock"):
        thread.start()
        time.sleep(0.1)
        assert not kept.kept.exists()
    thread.join()
    assert read([kept.kept]) == (rows(), [])


def test_a_file_without_any_row_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "grid.yaml"
    wrong.write_text("title: a grid\n")
    with pytest.raises(DsuiError, match=r"grid.yaml line 1 is not a results row: .* Name files of results rows"):
        FinishedCells(tmp_path / "new.jsonl", [wrong]).find(CELL)


def test_a_folder_stands_for_its_files_and_a_missing_one_is_named(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "a.points", "notes.md"):
        (tmp_path / name).write_text(json.dumps({}))
    assert files_of_rows([tmp_path, tmp_path / "b.jsonl"]) == [
        tmp_path / name for name in ("a.jsonl", "b.jsonl", "b.jsonl")
    ]
    (tmp_path / "empty").mkdir()
    for name, why in (("none", "none is missing"), ("empty", "empty holds no .jsonl file")):
        with pytest.raises(DsuiError, match=f"{why}; name results rows"):
            files_of_rows([tmp_path / name])
