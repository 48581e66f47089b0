"""The table of a study is the paper's, and a curve has its points."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow
from dsui.experiments.grid import Cell
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import Study
from dsui.experiments.study_table import columns, figure_csv, study_table
from tests.support.tiny_grid import row_of


def pretend(study: Study, cell: Cell, *rows: ResultRow) -> None:
    """Write a cell down as done with these rows."""
    record = {"rows": [json.loads(row.to_json()) for row in rows], "points": []}
    study.write(f"cells/{cell.key}.json", json.dumps(record))


def test_the_accuracy_table_is_table_2_and_dashes_stand_where_the_paper_has_them(tmp_path: Path) -> None:
    study = Study(load_grid("accuracy"), tmp_path)
    printed = {(row.method, row.data, row.backbone): row.metrics["accuracy"] for row in paper_rows("table2")}
    for cell in study.grid.cells:
        mean = printed.get((cell.predictor, cell.config.data, cell.config.backbone), 0.5)  # bbb is not in the paper
        off = 0.001 * (cell.config.seed - 2)
        pretend(study, cell, row_of(cell, "accuracy", "prediction", None, {"accuracy": mean + off}))
    table = study_table(study, quoted=True)
    assert [column.header[:2] for column in table.columns[::2]] == [
        (data, backbone)
        for data in ("cifar10", "cifar100", "svhn", "tiny-imagenet")
        for backbone in ("vgg16", "resnet18")
    ]
    assert [column.header[2] for column in table.columns] == ["prediction", "density"] * 8
    methods = ["msp", "mc-dropout", "dpn", "rkl", "sde-net", "dsui"]
    ours = {line.label: line for line in table.lines if not line.quoted}
    quoted = {line.label: line for line in table.lines if line.quoted}
    assert (sorted(ours), list(quoted)) == (sorted([*methods, "bbb"]), methods)
    for method in methods:
        for here, there in zip(ours[method].cells[::2], quoted[method].cells[::2], strict=True):
            assert (here.mean is None) == (there.mean is None)
            assert here.mean is None or here.mean == pytest.approx(there.mean, abs=1e-12)  # summing five floats
    assert not any(line.quoted for line in study_table(study, quoted=False).lines)


def test_ablation_lines_stay_apart_and_are_tested_against_the_whole(tmp_path: Path) -> None:
    study = Study(load_grid("ablation"), tmp_path)
    for cell in study.grid.cells:
        accuracy = 0.9 + 0.01 * int(str(cell.config.recipe.method_options["components"])) + 1e-4 * cell.config.seed
        pretend(study, cell, row_of(cell, "accuracy", "prediction", None, {"accuracy": accuracy}))
    table = study_table(study, quoted=True)
    assert len(table.lines) == 9 + 8  # the printed push made stable is not in the paper
    assert table.lines[0].label == "dsui (K 1, push, reg)"
    assert table.lines[0].cells[0].mark == "✓"
    assert table.lines[3].cells[0].mark is None  # the reference itself
    assert [column.header[-1] for column in table.columns] == ["accuracy"] * 2 + ["AUROC"] * 4 + ["AUPR"] * 4


def test_open_set_splits_are_the_five_runs_of_a_line(tmp_path: Path) -> None:
    study = Study(load_grid("open-set"), tmp_path)
    for cell in study.grid.cells:
        pretend(study, cell, row_of(cell, "open-set", "entropy", "unknown", {"auroc": 0.7, "aupr": 0.6}))
    table = study_table(study, quoted=True)
    assert len(table.columns) == 2 * (2 * 2 + 4)
    assert {cell.runs for line in table.lines if not line.quoted for cell in line.cells if cell.mean} == {5}
    assert [line.label for line in table.lines if line.quoted][-1] == "dsui"
    assert len([line for line in table.lines if line.quoted]) == 7


def test_a_curve_has_mean_and_deviation_for_each_method_and_x(tmp_path: Path) -> None:
    study = Study(load_grid("ood-pairs"), tmp_path)
    for cell in study.grid.cells:
        metrics = {"auroc": 0.8 + 0.01 * cell.config.seed, "aupr": 0.5}
        pretend(study, cell, *(row_of(cell, "ood", "entropy", name, metrics) for name in cell.foreign))
    rows = list(csv.DictReader(figure_csv(study, study_table(study, quoted=True)).splitlines()))
    assert len({row["x"] for row in rows}) == 10
    assert len(rows) == (6 * 10 - 2 * 3) * 2  # DPN and SDE-Net are not trained on Tiny ImageNet; AUROC and AUPR
    one = next(row for row in rows if (row["method"], row["x"], row["metric"]) == ("dsui", "cifar10 → svhn", "auroc"))
    assert float(one["mean"]) == pytest.approx(0.82, abs=1e-12)  # summing five floats
    assert float(one["deviation"]) == pytest.approx(0.01 * 2.5**0.5, abs=1e-12)  # of 0 to 4, with n - 1
    assert one["runs"] == "5"


def test_every_table_has_the_columns_its_grid_names() -> None:
    counts = {"noise": 8, "misclassification": 64, "ood-pairs": 80, "fgsm": 90, "distributions": 0}
    assert {name: len(columns(load_grid(name))) for name in counts} == counts
