"""One table for each question."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow
from dsui.evaluation.tasks import EPSILONS
from dsui.report.comparison import available
from dsui.report.comparison_questions import FEW_ATTACKS, QUESTIONS, usual_figures
from dsui.report.comparison_tables import QuestionTables, compare_by_question, run_by_question
from dsui.report.comparison_terminal import to_terminal
from dsui.report.tables import Table
from tests.support.comparison_rows import ROW

IMAGES = {"misclassification": None, "ood": "photos", "open-set": "unknown", "noise": "noise"}
RANKING = {"auroc": 0.9, "aupr": 0.8, "aurc": 0.01, "fpr95": 0.2, "e_aurc": 0.005}
STATED = {"accuracy": 0.95, "nll": 0.2, "ece": 0.02, "brier": 0.1}


def run_rows(
    method: str = "dsui", seed: int = 0, scores: Sequence[str] = ("entropy", "uncertainty"), **changes: Any
) -> list[ResultRow]:
    """Every task of one run; attacks of all strengths."""
    own = replace(ROW, method=method, run=f"{method}-{seed}", seed=seed, **changes)
    metrics = {name: value + seed / 1000 for name, value in RANKING.items()}
    rows = [
        replace(own, task="accuracy", foreign=None, score=stream, metrics=STATED, n_positive=None, n_negative=None)
        for stream in ("prediction", "density")
    ]
    for task, foreign in [*IMAGES.items(), *(("fgsm", epsilon) for epsilon in EPSILONS)]:
        rows += [replace(own, task=task, foreign=foreign, score=score, metrics=metrics) for score in scores]
        if task == "fgsm":
            rows.append(replace(own, task=task, foreign=foreign, score="prediction", metrics=STATED))
    return rows


def tables_of(rows: Sequence[ResultRow], **every: bool) -> QuestionTables:
    return compare_by_question(rows, usual_figures(available(rows), rows, **every))


def labels(table: Table) -> list[str]:
    return [line.name for line in table.lines]


def text(tables: QuestionTables, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(to_terminal(tables, width, styled=False))
    return stream.getvalue()


def test_each_question_has_its_table_with_its_metrics_by_the_recommended_score() -> None:
    tables = tables_of([*run_rows("dsui"), *run_rows("msp")]).tables
    assert [table.title.split(",")[0].split(" (")[0] for table in tables] == [
        *("Accuracy and calibration", "Finding errors", "Finding foreign images: photos"),
        *("Finding unknown classes", "Finding noise", "Finding attacks by FGSM"),
    ]
    assert len(tables) == len(QUESTIONS)
    for table in tables[1:]:
        assert table.title.endswith(", by uncertainty *")
    for table in tables[:5]:
        assert labels(table) == ["dsui", "msp"]
    assert [[column.header[-1] for column in table.columns] for table in tables] == [
        ["accuracy", "NLL", "ECE"],
        ["AUROC", "AUPR", "AURC"],
        ["AUROC", "FPR95"],
        ["AUROC", "AUPR"],
        ["AUROC", "FPR95"],
        ["accuracy", "AUROC"],
    ]


def test_cells_are_those_of_the_wide_table() -> None:
    rows = [row for method in ("dsui", "msp") for seed in range(3) for row in run_rows(method, seed)]
    errors = tables_of(rows).tables[1]
    assert errors.lines[0].cells[0].mean == pytest.approx(RANKING["auroc"] + 0.001)
    assert errors.lines[0].cells[0].runs == 3
    assert errors.lines[1].cells[0].mark is not None, "it is tested against the reference"


def test_of_attacks_the_weakest_are_shown_and_the_title_says_so() -> None:
    attacks = tables_of([*run_rows("dsui"), *run_rows("msp")]).tables[-1]
    assert f"the {FEW_ATTACKS} weakest of {len(EPSILONS)}" in attacks.title
    assert list(dict.fromkeys(line.group for line in attacks.lines)) == ["ε 0.00784", "ε 0.0157", "ε 0.0314"]
    every = tables_of([*run_rows("dsui"), *run_rows("msp")], every_attack=True).tables[-1]
    assert len(every.lines) == 2 * len(EPSILONS)
    assert "weakest" not in every.title
    backwards = tables_of(list(reversed(run_rows())), every_attack=True).tables[-1]
    assert [line.label for line in backwards.lines] == [
        line.label
        for line in run_by_question(run_rows(scores=["uncertainty"]), every_stream=False, every_attack=True)
        .tables[-1]
        .lines
    ]


def test_several_scores_are_groups_with_the_recommended_one_first() -> None:
    rows = [*run_rows("dsui"), *run_rows("msp")]
    errors, foreign = tables_of(rows, every_score=True).tables[1:3]
    assert labels(errors) == ["by uncertainty *, dsui", "by uncertainty *, msp", "by Ent., dsui", "by Ent., msp"]
    assert labels(foreign) == labels(errors)
    assert "by " not in errors.title


def test_several_foreign_sets_are_groups_and_only_lines_with_figures_stand_in_them() -> None:
    more = [replace(row, foreign="svhn") for row in run_rows("dsui") if row.task == "ood"]
    foreign = tables_of([*run_rows("dsui"), *run_rows("msp"), *more]).tables[2]
    assert labels(foreign) == ["photos (1,500 images), dsui", "photos (1,500 images), msp", "svhn (1,500 images), dsui"]


def test_several_data_sets_are_told_apart() -> None:
    rows = [*run_rows("dsui"), *run_rows("msp"), *run_rows("dsui", data="svhn"), *run_rows("msp", data="svhn")]
    tables = tables_of(rows)
    assert tables.title == "Comparison"
    assert labels(tables.tables[4])[1:3] == [
        "digits, small (1,500 images), msp",
        "svhn, small (1,500 images), dsui",
    ]
    assert labels(tables.tables[2])[0] == "digits, small → photos (1,500 images), dsui"


@pytest.mark.parametrize(
    ("scores", "sets", "corner", "expected"),
    [
        (["uncertainty"], ["photos"], "method", ["dsui"]),
        (["uncertainty"], ["photos", "svhn"], "images", ["photos (1,500 images)", "svhn (1,500 images)"]),
        (["energy", "uncertainty"], ["photos"], "score", ["uncertainty *", "energy"]),
        (
            ["energy", "uncertainty"],
            ["photos", "svhn"],
            "score",
            [f"{name} (1,500 images), {score}" for name in ("photos", "svhn") for score in ("uncertainty *", "energy")],
        ),
    ],
)
def test_the_lines_of_one_run_are_its_cases(
    scores: list[str], sets: list[str], corner: str, expected: list[str]
) -> None:
    rows = [row for row in run_rows(scores=scores) if row.task != "ood"]
    rows += [replace(row, foreign=name) for name in sets for row in run_rows(scores=scores) if row.task == "ood"]
    tables = run_by_question(rows, every_stream=False, every_attack=False)
    assert tables.title == "dsui-0: dsui on digits, small, recipe demo, seed 0"
    assert (tables.tables[2].corner, labels(tables.tables[2])) == (corner, expected)
    assert labels(tables.tables[0]) == ["dsui"], "the prediction alone"
    competing = tables.tables[2].places(0)
    assert any(competing) == (len(scores) > 1), "scores compete, sets of images do not"


def test_a_question_without_an_answer_keeps_its_line() -> None:
    """A run without errors was asked all the same."""
    rows = [replace(row, metrics=dict.fromkeys(row.metrics, float("nan"))) for row in run_rows() if row.task != "noise"]
    tables = run_by_question(rows, every_stream=False, every_attack=False)
    assert [cell.mean for cell in tables.tables[1].lines[0].cells] == [None] * 3
    assert tables.tables[1].title.startswith("Finding errors")


def test_counts_stand_in_the_title_where_runs_agree_on_them() -> None:
    def title(*errors: int) -> str:
        rows = [
            row if row.task != "misclassification" else replace(row, n_positive=count, n_negative=797 - count)
            for seed, count in enumerate(errors)
            for row in run_rows(seed=seed)
        ]
        return tables_of(rows).tables[1].title

    assert title(20) == "Finding errors (20 of 797 images), by uncertainty *"
    assert title(20, 20) == "Finding errors (20 of 797 images), by uncertainty *"
    assert title(20, 23) == "Finding errors (797 images), by uncertainty *"


def test_rows_without_the_recommended_score_are_shown_by_their_first() -> None:
    """As those of early versions and the paper's."""
    old = run_rows(scores=["max_probability", "entropy"])
    assert "by Max.P." in tables_of(old).tables[1].title
    own = run_rows(data="cifar10", backbone="resnet18")
    figures = usual_figures(available(own, paper_rows()), [*own, *paper_rows()])
    assert {figure.score for figure in figures if figure.task == "misclassification"} == {
        *("uncertainty", "max_probability")
    }


def test_metrics_of_a_later_version_and_tasks_of_one_are_shown_when_asked_for() -> None:
    rows = [*run_rows(), replace(ROW, task="weather", foreign=None, score="uncertainty", metrics={"rain": 0.5})]
    last = tables_of(rows, every_metric=True).tables[-1]
    assert last.title == "weather (1,500 images), by uncertainty *"
    assert [column.header for column in last.columns] == [("rain",)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_table_fits(width: int) -> None:
    """With deviations, marks, several settings, sets and scores."""
    many = "modern, average=swa, rho=100, sam=0.05, schedule=held-cosine, swa_start=0.6"
    rows = [
        row
        for recipe in ("demo", many)
        for method in ("dsui", "logitnorm")
        for seed in range(3)
        for row in run_rows(method, seed, recipe=recipe)
    ]
    rows += [replace(row, foreign="tiny-imagenet") for row in rows if row.task == "ood"]
    for every_score in (False, True):
        shown = text(tables_of(rows, every_score=every_score), width)
        assert max(map(len, shown.splitlines())) <= width
        assert "dsui B" in shown
        assert "B  modern, average=swa, rho=100" in shown, "the settings stand once, below"
        assert shown.count("rho=100") == 1
        assert shown.count("accuracy % ↑") == 2, "no table is continued"


def test_two_runs_take_few_lines() -> None:
    rows = [row for row in (*run_rows("dsui"), *run_rows("msp")) if row.task not in {"open-set", "fgsm"}]
    assert len(text(tables_of(rows), 80).splitlines()) < 40  # 188 as one wide table
