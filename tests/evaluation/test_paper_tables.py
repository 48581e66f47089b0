from __future__ import annotations

import pytest

from dsui.evaluation.paper_tables import TABLES, PaperRow, paper_rows
from dsui.evaluation.statistics import ALIKE, DIFFERENT, Summary, mark, t_test

METHODS = {"msp", "mc-dropout", "dpn", "rkl", "sde-net", "g-openmax", "c2ae", "gdosr", "dsui"}

Place = tuple[str, str, str | None, str | None, str]


def place(row: PaperRow, metric: str) -> Place:
    return row.table, row.data, row.backbone, row.score, metric


def summary(row: PaperRow, metric: str) -> Summary:
    return Summary(row.metrics[metric], row.deviation[metric], row.runs)


def test_students_test_gives_all_74_distinct_marks_that_the_paper_prints() -> None:
    rows = [row for table in TABLES[1:] for row in paper_rows(table)]
    ours = {place(row, metric): summary(row, metric) for row in rows if row.method == "dsui" for metric in row.metrics}
    distinct, wrong = set(), []
    for row in rows:
        for metric, printed in row.mark.items():
            if row.method == "dsui" or row.deviation[metric] is None:
                continue
            recomputed = mark(t_test(summary(row, metric), ours[place(row, metric)]))
            # baseline and MC dropout share their accuracies, which are one test
            distinct.add((place(row, metric), row.metrics[metric], row.deviation[metric], printed))
            if recomputed != printed:
                wrong.append((row.method, place(row, metric)))
    assert wrong == []
    assert len(distinct) == 74
    assert sum(printed == ALIKE for *_, printed in distinct) == 10


def test_every_rival_figure_is_marked_and_dsui_is_not_applicable() -> None:
    for table, count in (("table2", 33), ("table3", 30), ("table4", 20)):
        rivals = [row for row in paper_rows(table) if row.method != "dsui"]
        marks = [row.mark[metric] for row in rivals for metric in row.metrics]
        assert len(marks) == count
        assert set(marks) <= {DIFFERENT, ALIKE}
        assert {m for row in paper_rows(table) if row.method == "dsui" for m in row.mark.values()} == {"N/A"}
    assert not any(row.mark for row in paper_rows("table1"))


@pytest.mark.parametrize(
    ("table", "figures", "means", "deviations"),
    [
        ("table1", 40, 2976.38, 24.54),
        ("table2", 41, 3204.77, 12.58),
        ("table3", 38, 2805.89, 28.44),
        ("table4", 24, 2089.57, 93.64),
    ],
)
def test_sums_of_all_printed_numbers_are_the_papers(table: str, figures: int, means: float, deviations: float) -> None:
    values = [value for row in paper_rows(table) for value in row.metrics.values()]
    spread = [value for row in paper_rows(table) for value in row.deviation.values() if value is not None]
    assert len(values) == figures
    # summed over the paper's source in decimal; float sums of 41 numbers are good to 1e-9
    assert (100 * sum(values), 100 * sum(spread)) == pytest.approx((means, deviations), abs=1e-9)


def test_one_deviation_is_missing_and_three_methods_are_quoted_from_elsewhere() -> None:
    rows = paper_rows()
    missing = [(r.method, r.data, name) for r in rows for name, value in r.deviation.items() if value is None]
    assert missing == [("g-openmax", "tiny-imagenet", "auroc")]
    assert {row.method for row in rows if row.quoted_from} == {"g-openmax", "c2ae", "gdosr"}
    assert {row.method for row in rows} == METHODS
    assert {(row.runs, row.source) for row in rows} == {(5, "published")}


def test_ablation_settings_are_eight_and_the_full_one_is_the_dsui_of_table_2() -> None:
    settings = {tuple((row.settings or {}).values()) for row in paper_rows("table1")}
    assert len(settings) == 8
    full = [
        row.metrics["accuracy"]
        for row in paper_rows()
        if (row.method, row.data, row.backbone, row.task) == ("dsui", "cifar10", "vgg16", "accuracy")
        and (row.settings is None or row.settings == {"components": 8, "push": True, "regularizer": "reg"})
    ]
    assert full == [0.9264, 0.9264]


def test_unknown_table_is_named() -> None:
    with pytest.raises(ValueError, match="table must be one of 'table1'"):
        paper_rows("table5")
