"""The shipped grids are the tables and figures of the paper."""

from __future__ import annotations

from collections import Counter

import pytest

from dsui.evaluation.paper_tables import PaperRow, paper_rows
from dsui.experiments.grid import Grid
from dsui.experiments.grid_file import load_grid, names
from dsui.methods.registry import effective_options

FIVE = 5


def places(grid: Grid) -> Counter[tuple[str, str, str]]:
    return Counter((cell.predictor, cell.config.data, cell.config.backbone) for cell in grid.cells)


@pytest.mark.parametrize(
    ("name", "cells", "runs"),
    [
        # the 41 numbers of Table 2, of which MC dropout's 8 share weights, and bbb on four sets and two backbones
        ("accuracy", (41 + 8) * FIVE, (33 + 8) * FIVE),
        ("ablation", (8 + 1) * FIVE, (8 + 1) * FIVE),
        ("as-printed", 3 * 2, 3 * 2),
        ("open-set", 7 * 2 * FIVE, 7 * 2 * FIVE),
        ("noise", 6 * FIVE, 5 * FIVE),
        ("misclassification", 41 * FIVE, 33 * FIVE),
        ("distributions", 1, 1),
        ("ood-pairs", 22 * FIVE, 18 * FIVE),  # Table 2's ResNet18 columns: 4 + 4 + 3 + 4 + 3 + 4
        ("fgsm", 6 * FIVE, 5 * FIVE),
        ("tsne", 2, 2),
        ("tiny-imagenet-64", 2, 2),
        ("digits", 4 * 3, 3 * 3),
        ("demo", 4 * 2 * 3, 4 * 2 * 3),
        ("cifar10-paper", 3 * 5 + 4 * 3, 2 * 5 + 4 * 3),
        ("cifar10-parts", 8 * 3, 8 * 3),
        ("cifar10-selection", 50, 50),
        ("cifar10-modern-selection", 23, 21),
        ("cifar10-modern", 15, 12),
        ("cifar10-attacks", 4, 4),
        ("cifar10-doubles-selection", 29, 21),
        ("cifar10-doubles", 2 * 5 + 10 * 3, 5 + 10 * 3),
        ("cifar100-doubles", 2 * 5 + 10 * 3, 5 + 10 * 3),
        ("digits-calibration", 8 * 10, 8 * 10),
        ("digits-doubles", 5 * 6, 5 * 6),
        ("digits-families", 12 * 3, 12 * 3),
        ("digits-methods", 24 * 3, 22 * 3),
        ("digits-unknown", 5 * 3, 5 * 3),
        # 6 places by 5 seeds of 3 methods, by 3 of 3; 3 by 3 of 4; MC dropout's 30 share weights
        ("paper-sets", 231, 191),
        ("families-selection", 24, 12),
        ("rkl-selection", 5, 5),
        ("geometry", 5 * 3, 5 * 3),
        ("small-net", 34, 33),
        ("small-net-long", 11, 8),
        ("small-net-modern", 24, 17),
        ("small-net-printed", 6, 6),
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
    ours = {place: count for place, count in places(load_grid("accuracy")).items() if place[0] != "bbb"}
    assert ours == dict.fromkeys(printed, FIVE)


def test_ablation_trains_the_parts_of_table_1() -> None:
    def parts(row: PaperRow) -> tuple[object, ...]:
        assert row.settings is not None
        return row.settings["components"], row.settings["push"], row.settings["regularizer"]

    trained = {
        (options["components"], options["objective"] != "sgvb", options["regularizer"])
        for options in (cell.config.recipe.method_options for cell in load_grid("ablation").cells)
    }
    assert trained == {parts(row) for row in paper_rows("table1")}


def test_the_printed_layer_has_none_of_the_parts_that_are_not_in_the_paper() -> None:
    cells = {cell.label: cell.config for cell in load_grid("as-printed").cells}
    printed = cells["layer and objective as printed"]
    options = effective_options("dsui", printed.recipe, printed.options)
    chosen = {key: options[key] for key in ("objective", "rho", "project", "logit_scale", "kappa", "regularizer")}
    assert chosen == {
        "objective": "literal",
        "rho": 4.0,
        "project": False,
        "logit_scale": "one",
        "kappa": None,
        "regularizer": "reg-paper",
    }
    assert printed.recipe.neck
    assert options["components"] == 8
    released = cells["as released"].recipe
    assert (released.name, released.method_options["head"]) == ("released", "released")


def test_tables_of_the_paper_show_the_mixtures_beside_the_classifier() -> None:
    for name in ("accuracy", "ablation", "misclassification", "noise", "ood-pairs", "fgsm", "paper-sets"):
        for block in load_grid(name).table:
            if "prediction" in block.scores and block.task == "accuracy":
                assert "density" in block.scores, name
            if "entropy" in block.scores:
                assert {"density_max_probability", "density_entropy"} <= set(block.scores), name


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
    for name in ("misclassification", "ood-pairs", "fgsm", "noise"):
        assert {cell.run_name for cell in load_grid(name).cells} <= accuracy
    frozen = {cell.run_name for name in ("cifar10-paper", "paper-sets") for cell in load_grid(name).cells}
    for name in ("distributions", "tsne"):
        assert {cell.run_name for cell in load_grid(name).cells} <= frozen
    assert len({cell.run_name for cell in load_grid("ablation").cells} & frozen) == FIVE  # K = 8 with push and Reg
