from __future__ import annotations

from dataclasses import replace

from dsui.evaluation import TASKS
from dsui.report.run_table import SHOWN, run_table
from dsui.report.table_forms import to_latex, to_markdown
from dsui.report.tables import Table
from tests.support import result_row

METRICS = ("auroc", "aupr", "aurc", "fpr95")
ROW = replace(
    result_row.ROW,
    data="digits",
    backbone="small",
    recipe="demo",
    seed=4,
    task="misclassification",
    foreign=None,
    metrics={name: place / 10 for place, name in enumerate(METRICS)},
)
ACCURACY = replace(ROW, task="accuracy", score="prediction", metrics={"accuracy": 0.98765})


def figures(table: Table) -> dict[str, dict[str, float | None]]:
    names = [column.name for column in table.columns]
    return {line.label: dict(zip(names, [cell.mean for cell in line.cells], strict=True)) for line in table.lines}


def test_every_task_has_columns() -> None:
    assert SHOWN.keys() == set(TASKS)


def test_a_line_for_each_score_and_a_column_for_each_task_set_and_metric() -> None:
    rows = [
        ACCURACY,
        ROW,
        replace(ROW, score="log_density", metrics={"auroc": 0.5, "aupr": 0.6, "aurc": 0.7}),
        replace(ROW, task="ood", foreign="svhn", metrics={"auroc": 0.8, "fpr95": 0.1}),
        replace(ROW, task="ood", foreign="svhn", score="log_density", metrics={"auroc": 0.9, "fpr95": 0.2}),
        replace(ROW, task="fgsm", foreign=8 / 255, metrics={"auroc": 0.55}),
        replace(ROW, task="noise", foreign="noise", score="knn", metrics={"auroc": 1.0, "fpr95": 0.0}),
        replace(ROW, task="open-set", foreign="unknown", metrics={"auroc": 0.66, "aupr": 0.77}),
    ]
    table = run_table(rows)
    assert figures(table) == {
        "Ent.": {
            "misclassification AUROC": 0.0,
            "misclassification AUPR": 0.1,
            "misclassification AURC": 0.2,
            "svhn AUROC": 0.8,
            "svhn FPR95": 0.1,
            "ε 0.0314 AUROC": 0.55,
            "noise AUROC": None,
            "noise FPR95": None,
            "open-set AUROC": 0.66,
            "open-set AUPR": 0.77,
        },
        "log-density": {
            **dict.fromkeys(figures(table)["Ent."]),
            "misclassification AUROC": 0.5,
            "misclassification AUPR": 0.6,
            "misclassification AURC": 0.7,
            "svhn AUROC": 0.9,
            "svhn FPR95": 0.2,
        },
        "knn": {**dict.fromkeys(figures(table)["Ent."]), "noise AUROC": 1.0, "noise FPR95": 0.0},
    }


def test_the_title_names_the_run_and_the_note_its_accuracies() -> None:
    density = replace(ACCURACY, score="density", metrics={"accuracy": 0.9})
    earlier = replace(ACCURACY, metrics={"accuracy": 0.5})
    table = run_table([earlier, ACCURACY, density, ROW])
    assert table.title == "dsui-0: dsui on digits, small, recipe demo, seed 4"
    assert table.note == "accuracy of the prediction 98.77 %; accuracy of the density 90.00 %; 1 error among 2 images."
    assert table.corner == "score"


def test_the_note_tells_how_many_attacked_images_are_still_right() -> None:
    attacked = [
        replace(ROW, task="fgsm", foreign=size, score=score, metrics=metrics)
        for size, right in ((8 / 255, 0.5), (0.1, 0.25))
        for score, metrics in {"prediction": {"accuracy": right}, "entropy": {"auroc": 0.75}}.items()
    ]
    table = run_table([ACCURACY, *attacked])
    under = "accuracy under attack 50.00 % at ε 0.0314, 25.00 % at ε 0.1"
    assert table.note == f"accuracy of the prediction 98.77 %; {under}."
    assert figures(table) == {"Ent.": {"ε 0.0314 AUROC": 0.75, "ε 0.1 AUROC": 0.75}}


def test_the_note_counts_the_images_behind_each_question() -> None:
    own = replace(ROW, n_positive=51, n_negative=1249)
    foreign = replace(ROW, task="ood", foreign="svhn", n_positive=26032, n_negative=1300)
    unknown = replace(foreign, task="open-set", foreign="unknown", n_positive=7)
    attacked = replace(foreign, task="fgsm", foreign=0.1)
    uncounted = replace(foreign, foreign="cifar100", n_positive=None)
    note = run_table([own, foreign, unknown, attacked, uncounted]).note
    assert note == "51 errors among 1,300 images; 26,032 images of svhn; 7 images of unknown classes."


def test_directions_are_those_of_the_metrics() -> None:
    table = run_table([ROW, replace(ROW, task="noise", foreign="noise")])
    better = {column.name: column.higher_is_better for column in table.columns}
    assert better == {
        "misclassification AUROC": True,
        "misclassification AUPR": True,
        "misclassification AURC": False,
        "noise AUROC": True,
        "noise FPR95": False,
    }


def test_a_figure_that_does_not_exist_is_a_dash() -> None:
    table = run_table([replace(ROW, metrics={"auroc": float("nan"), "aupr": float("nan"), "aurc": 0.0})])
    assert [cell.mean for cell in table.lines[0].cells] == [None, None, 0.0]
    assert "-" in to_markdown(table).splitlines()[4]
    assert to_latex(table).count(" - ") == 2
