"""The shipped grids are the tables and figures of the paper."""

from __future__ import annotations

from collections import Counter

import pytest

from dsui.evaluation.paper_tables import PaperRow, paper_rows
from dsui.experiments.grid import Grid
from dsui.experiments.grid_file import load_grid, names

FIVE = 5


def places(grid: Grid) -> Counter[tuple[str, str, str]]:
    return Counter((cell.predictor, cell.config.data, cell.config.backbone) for cell in grid.cells)


@pytest.mark.parametrize(
    ("name", "cells", "runs"),
    [
        ("accuracy", 41 * FIVE, 33 * FIVE),  # the 41 numbers of Table 2, of which MC dropout's 8 share weights
        ("ablation", 8 * FIVE, 8 * FIVE),
        ("open-set", 7 * 2 * FIVE, 7 * 2 * FIVE),
        ("noise", 6 * FIVE, 5 * FIVE),
        ("misclassification", 41 * FIVE, 33 * FIVE),
        ("distributions", 1, 1),
        ("ood-pairs", 22 * FIVE, 18 * FIVE),  # Table 2's ResNet18 columns: 4 + 4 + 3 + 4 + 3 + 4
        ("fgsm", 6 * FIVE, 5 * FIVE),
        ("tsne", 2, 2),
        ("digits", 4 * 3, 3 * 3),
        ("demo", 4 * 2 * 3, 4 * 2 * 3),
        ("cifar10-paper", 3 * 5 + 4 * 3, 2 * 5 + 4 * 3),
        ("cifar10-parts", 8 * 3, 8 * 3),
        ("cifar10-selection", 50, 50),
        ("cifar10-modern-selection", 23, 21),
        ("cifar10-modern", 15, 12),
        ("cifar10-attacks", 4, 4),
        ("cifar10-doubles-selection", 29, 21),
        ("digits-doubles", 5 * 6, 5 * 6),
        (
            "paper-sets",
            162,
            132,
        ),  # 6 places by 5 seeds of 3 methods, by 3 of 2; 3 by 3 of 4; MC dropout's 30 share weights
        ("small-net", 34, 33),
        ("small-net-long", 11, 8),
        ("small-net-modern", 24, 17),
    ],
)
def test_every_shipped_grid_has_the_cells_of_its_table(name: str, cells: int, runs: int) -> None:
    grid = load_grid(name)
    assert len(grid.cells) == cells
    assert len({cell.run_name for cell in grid.cells}) == runs
    assert len({cell.key for cell in grid.cells}) == cells


def test_every_shipped_grid_is_named_in_the_test_above() -> None:
    (mark,) = test_every_shipped_grid_has_the_cells_of_its_table.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == set(names())


def test_accuracy_runs_where_the_paper_prints_a_number_and_nowhere_else() -> None:
    printed = {(row.method, row.data, row.backbone) for row in paper_rows("table2")}
    assert places(load_grid("accuracy")) == dict.fromkeys(printed, FIVE)


def test_ablation_trains_the_parts_of_table_1() -> None:
    def parts(row: PaperRow) -> tuple[object, ...]:
        assert row.settings is not None
        return row.settings["components"], row.settings["push"], row.settings["regularizer"]

    trained = {
        (options["components"], options["objective"] != "sgvb", options["regularizer"])
        for options in (cell.config.recipe.method_options for cell in load_grid("ablation").cells)
    }
    assert trained == {parts(row) for row in paper_rows("table1")}


def test_noise_and_open_set_run_every_method_of_their_tables() -> None:
    for name, table in (("noise", "table4"), ("open-set", "table3")):
        printed = {(row.method, row.data) for row in paper_rows(table)}
        assert {(cell.predictor, cell.config.data) for cell in load_grid(name).cells} == printed


def test_there_are_ten_pairs_and_ten_strengths() -> None:
    pairs = {(cell.config.data, name) for cell in load_grid("ood-pairs").cells for name in cell.foreign}
    assert len(pairs) == 10
    assert {cell.epsilons for cell in load_grid("fgsm").cells} == {tuple(step / 10 for step in range(1, 11))}


def test_studies_of_equal_configuration_share_runs() -> None:
    accuracy = {cell.run_name for cell in load_grid("accuracy").cells}
    for name in ("misclassification", "ood-pairs", "fgsm", "noise", "distributions", "tsne"):
        assert {cell.run_name for cell in load_grid(name).cells} <= accuracy
    assert len({cell.run_name for cell in load_grid("ablation").cells} & accuracy) == FIVE  # K = 8 with push and Reg
