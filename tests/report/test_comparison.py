from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from scipy import stats

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import holm
from dsui.report.columns import Figure
from dsui.report.comparison import available, compare
from dsui.report.comparison_lines import with_mixtures
from dsui.report.tables import Entry, Table
from tests.support import result_row

ROW = replace(
    result_row.ROW,
    run="",
    protocol="p",
)
OURS, MSP, RKL = [0.91, 0.92, 0.93], [0.80, 0.81, 0.82], [0.88, 0.90, 0.96]
AUROC = Figure("cifar10", "resnet18", "ood", "svhn", "entropy", "auroc")


def runs(method: str, values: list[float], metric: str = "auroc", **changes: object) -> list[ResultRow]:
    rows = []
    for seed, value in enumerate(values):
        row = replace(ROW, method=method, run=f"{method}-{seed}", seed=seed, metrics={metric: value})
        rows.append(replace(row, **changes))  # type: ignore[arg-type]
    return rows


THREE = [*runs("dsui", OURS), *runs("msp", MSP, objective=None), *runs("rkl", RKL, objective=None)]


def cell(table: Table, label: str, column: int = 0, quoted: bool = False) -> Entry:
    return next(line for line in table.lines if (line.label, line.quoted) == (label, quoted)).cells[column]


def test_cells_hold_mean_deviation_and_students_p_over_the_runs() -> None:
    table = compare(THREE)
    assert [line.label for line in table.lines] == ["dsui", "msp", "rkl"]
    for label, values in (("dsui", OURS), ("msp", MSP), ("rkl", RKL)):
        found = cell(table, label)
        assert (found.mean, found.deviation, found.runs) == (statistics.mean(values), statistics.stdev(values), 3)
    # two ways to the same float64 sums
    assert cell(table, "msp").p == pytest.approx(stats.ttest_ind(OURS, MSP).pvalue, rel=1e-9)
    assert [cell(table, label).mark for label in ("dsui", "msp", "rkl")] == [None, "\u2713", "\u00d7"]
    assert "over 3 runs" in table.note
    assert "differs from dsui" in table.note
    assert "Student's" in table.note


def test_welch_and_holm_are_options_and_named_in_the_note() -> None:
    table = compare(THREE, equal_variances=False, correct=True)
    assert (
        stats.ttest_ind(OURS, RKL).pvalue < stats.ttest_ind(OURS, RKL, equal_var=False).pvalue - 0.005
    )  # they can be told apart
    raw = [float(stats.ttest_ind(OURS, values, equal_var=False).pvalue) for values in (MSP, RKL)]
    # two ways to the same float64 sums
    assert [cell(table, label).p for label in ("msp", "rkl")] == pytest.approx(holm(raw), rel=1e-9)
    assert "Welch's t-test, p < 0.05, Holm-corrected over 2 tests" in table.note


@pytest.mark.parametrize(("name", "count"), [("table2", 33), ("table3", 29), ("table4", 20)])
def test_papers_tables_come_out_with_the_papers_marks(name: str, count: int) -> None:
    rows = paper_rows(name)
    figures = available([], rows)
    table = compare([], quoted=rows)
    marks = 0
    for row in rows:
        for metric, printed in row.mark.items():
            column = next(
                i
                for i, f in enumerate(figures)
                if (f.data, f.score, f.metric) == (row.data, row.score, metric) and f.backbone == row.backbone
            )
            found = cell(table, row.method, column, quoted=True)
            assert found.mean == row.metrics[metric]
            if row.method != "dsui" and row.deviation[metric] is not None:
                assert found.mark == printed
                marks += 1
    assert marks == count
    assert ("Tested in some columns only (no deviation): g-openmax †." in table.note) is (name == "table3")


def test_papers_emphasis_of_table_4_is_best_bold_and_second_underlined() -> None:
    table = compare([], quoted=paper_rows("table4"))
    for column in range(4):
        assert dict(zip([line.label for line in table.lines], table.places(column), strict=True)) == {
            "msp": None, "mc-dropout": None, "dpn": None, "rkl": None, "sde-net": "best", "dsui": "second",
        }  # fmt: skip


def test_of_duplicate_rows_the_last_wins_whole() -> None:
    again = replace(THREE[0], metrics={"aupr": 0.5})
    table = compare([*THREE, again], [AUROC, AUROC._replace(metric="aupr")])
    assert cell(table, "dsui").runs == 2
    assert cell(table, "dsui", 1).mean == 0.5
    corrected = compare([*THREE, replace(THREE[0], metrics={"auroc": 0.99})])
    assert cell(corrected, "dsui").mean == statistics.mean([0.99, *OURS[1:]])
    assert cell(corrected, "dsui").runs == 3


def test_too_few_runs_are_named_in_the_note_instead_of_marks() -> None:
    alone = compare([THREE[0], THREE[3]])
    assert all(line.cells[0].mark is None for line in alone.lines)
    assert alone.note == "One run each, so without deviation. Nothing is tested: fewer than two runs."
    mixed = compare([*THREE, *runs("dpn", [0.5])])
    assert cell(mixed, "dpn") == Entry(0.5, None, 1)
    assert cell(mixed, "msp").mark == "\u2713"
    assert "over 1 to 3 runs" in mixed.note
    assert "Not tested (fewer than two runs): dpn." in mixed.note


def test_lines_without_some_of_the_tests_are_listed_apart_from_lines_without_any() -> None:
    other = [replace(row, foreign="cifar100") for row in (*THREE[:3], THREE[3])]
    note = compare([*THREE, *other, *runs("dpn", [0.5])]).note
    assert "Not tested (fewer than two runs): dpn. Tested in some columns only (fewer than two runs): msp." in note


def test_a_score_that_the_reference_lacks_is_tested_against_its_uncertainty() -> None:
    best, unlike = [0.95, 0.96, 0.97], [0.70, 0.71, 0.72]
    rows = [
        *runs("dsui", OURS, score="max_probability"),
        *runs("dsui", best, score="uncertainty"),
        *runs("c2ae", MSP, score="max_probability"),
        *runs("c2ae", unlike, score="reconstruction"),
    ]
    figures = [AUROC._replace(score=score) for score in ("max_probability", "reconstruction")]
    table = compare(rows, figures)
    # two ways to the same float64 sums
    assert cell(table, "c2ae", 1).p == pytest.approx(stats.ttest_ind(best, unlike).pvalue, rel=1e-9)
    assert cell(table, "c2ae", 0).p == pytest.approx(stats.ttest_ind(OURS, MSP).pvalue, rel=1e-9)
    assert cell(table, "dsui", 1) == Entry(), "what stands in is not shown as its figure"
    assert "For scores that dsui lacks (reconstruction), its uncertainty is compared." in table.note
    without = compare([row for row in rows if row.score != "uncertainty"], figures)
    assert cell(without, "c2ae", 1).p is None
    assert "Tested in some columns only (dsui lacks the figure): c2ae." in without.note


def test_methods_trained_in_several_ways_have_a_line_for_each_and_are_never_averaged() -> None:
    rows = [
        *runs("dsui", [0.9, 0.91]),
        *runs("dsui", [0.7, 0.71], objective="posterior"),
        *runs("dsui", [0.5, 0.51], objective="posterior", recipe="modern"),
        *runs("msp", [0.6, 0.61], objective="cross-entropy"),
    ]
    table = compare(rows)
    labels = ["dsui (bounded, paper)", "dsui (posterior, paper)", "dsui (posterior, modern)", "msp"]
    assert [line.label for line in table.lines] == labels
    assert "Nothing is tested: 3 lines are dsui, the reference." in table.note
    chosen = compare(rows, reference=labels[1])
    assert [cell(chosen, label).mark for label in labels] == ["\u2713", None, "\u2713", "\u2713"]
    assert "Nothing is tested: no line is rkl." in compare(rows, reference="rkl").note


def test_own_runs_are_tested_against_published_figures_which_stand_apart() -> None:
    own = runs("dsui", [0.9309, 0.9310, 0.9308], metric="accuracy", task="accuracy", foreign=None, score=None)
    table = compare(own, available(own), quoted=paper_rows("table2"))
    assert [line.quoted for line in table.lines] == [False] + [True] * 6
    assert cell(table, "dsui", quoted=True).mark == "\u00d7"
    assert cell(table, "msp", quoted=True).mark == "\u2713"
    assert "differs from dsui," in table.note
    assert "† quoted as published" in table.caption


def test_published_figure_without_a_backbone_stands_beside_every_backbone() -> None:
    noise = {"data": "cifar100", "task": "noise", "foreign": "noise"}
    own = [*runs("msp", MSP, **noise), *runs("msp", MSP, backbone="vgg16", **noise)]
    figures = [f for f in available(own, paper_rows("table4")) if (f.score, f.metric) == ("entropy", "auroc")]
    assert [f.backbone for f in figures] == ["resnet18", "vgg16"]
    table = compare(own, figures, quoted=paper_rows("table4"))
    assert [c.mean for c in table.lines[-1].cells] == [0.975, 0.975]


def test_columns_never_mix_data_backbones_or_foreign_sets_and_the_title_has_what_they_share() -> None:
    rows = [
        *runs("dsui", [0.9, 0.91]),
        *runs("dsui", [0.8, 0.81], foreign="cifar100"),
        *runs("dsui", [0.7, 0.71], task="fgsm", foreign=0.1),
        *runs("dsui", [0.6, 0.61], task="accuracy", foreign=None, score=None, metric="accuracy"),
    ]
    table = compare(rows)
    assert table.title == "Comparison: cifar10, resnet18"
    assert [column.header for column in table.columns] == [
        ("ood", "→ svhn", "Ent.", "AUROC"),
        ("ood", "→ cifar100", "Ent.", "AUROC"),
        ("fgsm", "ε 0.1", "Ent.", "AUROC"),
        ("", "", "", "accuracy"),
    ]
    # the last place of a mean of two
    assert [c.mean for c in table.lines[0].cells] == pytest.approx([0.905, 0.805, 0.705, 0.605], abs=1e-12)


def test_accuracy_and_ranking_of_attacked_images_are_of_the_same_images() -> None:
    ranked = runs("dsui", [0.7, 0.71], task="fgsm", foreign=2 / 255)
    right = runs("dsui", [0.5, 0.51], "accuracy", task="fgsm", foreign=2 / 255, score="prediction", n_positive=None)
    table = compare([*ranked, *right])
    assert [column.header for column in table.columns] == [("Ent.", "AUROC"), ("prediction", "accuracy")]
    assert "ε 0.00784" in table.title
    assert "different images" not in table.note
    fewer = [replace(row, n_positive=3) for row in ranked[1:]]
    assert "different images stand in one column (fgsm)" in compare([ranked[0], *fewer, *right]).note


def test_runs_that_know_some_classes_count_for_the_unknown_ones_alone_beside_runs_that_know_all() -> None:
    whole = runs("dsui", OURS, split="all-classes:1f")
    partial = runs("dsui", MSP, run="partial", split="neal-0:2e")
    unknown = [replace(row, task="open-set", foreign="unknown") for row in partial]
    table = compare([*whole, *partial, *unknown])
    assert [cell.runs for cell in table.lines[0].cells] == [3, 3]
    assert table.lines[0].cells[0].mean == pytest.approx(statistics.mean(OURS))
    assert table.lines[0].cells[1].mean == pytest.approx(statistics.mean(MSP))
    assert "Runs that know only some classes count for the unknown ones alone." in table.note
    alone = compare([*partial, *unknown])
    assert alone.lines[0].cells[0].mean == pytest.approx(statistics.mean(MSP)), "there are no others to mix them with"
    assert "count for" not in alone.note


def test_open_set_runs_on_several_class_splits_are_one_figure_and_the_splits_are_named() -> None:
    rows = [
        replace(row, task="open-set", foreign=f"cifar10:neal-{i}:unknown", split=f"neal-{i}")
        for i, row in enumerate(runs("dsui", OURS))
    ]
    table = compare(rows)
    assert cell(table, "dsui").runs == 3
    assert "Known classes in open-set tests: neal-0; neal-1; neal-2." in table.note


def test_units_and_directions_follow_the_metric_and_an_unknown_one_has_no_best() -> None:
    metrics = {"auroc": 0.9, "fpr95": 0.2, "aurc": 0.01, "novel": 3.0}
    columns = compare([replace(ROW, metrics=metrics)]).columns
    assert [column.lines[-1] for column in columns] == ["AUROC % ↑", "FPR95 % ↓", "AURC 1/1000 ↓", "novel"]


def test_the_note_names_figures_that_do_not_exist_mixed_protocols_and_shared_seeds() -> None:
    assert "left out" not in compare(THREE).note
    without = compare([*THREE, *runs("dpn", [0.5, math.nan, 0.6])])
    assert cell(without, "dpn").runs == 2
    assert "1 figures of single runs do not exist" in without.note
    assert "different protocols" in compare([*THREE, *runs("dpn", [0.5], protocol="q")]).note
    twice = [*THREE, replace(THREE[0], run="dsui-again")]
    assert "share their seed" in compare(twice).note
    assert not any(text in compare(THREE).note for text in ("protocols", "seed"))


def test_method_whose_only_figure_does_not_exist_has_a_dash() -> None:
    table = compare([*THREE, *runs("dpn", [math.nan])])
    assert cell(table, "dpn") == Entry()


def test_three_methods_with_two_figures_are_ranked_by_both() -> None:
    fpr = [
        row for m, v in (("dsui", 0.3), ("msp", 0.2), ("rkl", 0.1)) for row in runs(m, [v] * 3, "fpr95", score="energy")
    ]
    fpr = [row if row.method == "dsui" else replace(row, objective=None) for row in fpr]
    assert "Mean rank over the 2 columns that all of these have: 1.5 rkl; 2.0 dsui; 2.5 msp." in (
        compare([*THREE, *fpr]).note
    )
    assert "rank" not in compare(THREE).note
    assert "rank" not in compare([row for row in [*THREE, *fpr] if row.method != "rkl"]).note


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ValueError, match="no figures to compare"):
        compare([])


def test_named_lines_come_first_in_their_order_and_one_without_a_figure_is_dashes() -> None:
    quoted = [
        replace(row, data="cifar10", backbone="resnet18", foreign="svhn", task="ood") for row in paper_rows("table4")
    ]
    table = compare(THREE, [AUROC], lines=["rkl", "gone", "rkl"], quoted=quoted[:3])
    assert [line.label for line in table.lines if not line.quoted] == ["rkl", "gone", "dsui", "msp"]
    assert [line.quoted for line in table.lines] == sorted(line.quoted for line in table.lines)
    assert any(line.quoted for line in table.lines)
    assert cell(table, "gone") == Entry()
    usual = compare(THREE, [AUROC], quoted=quoted[:3])
    assert (table.note, table.columns) == (usual.note, usual.columns)
    assert {line.label: line for line in usual.lines if not line.quoted} == {
        line.label: line for line in table.lines if not line.quoted and line.label != "gone"
    }


def test_a_row_of_the_mixtures_is_also_a_row_of_the_same_measure_on_a_line_of_its_own() -> None:
    scores = {"density": "prediction", "density_max_probability": "max_probability", "density_entropy": "entropy"}
    rows = [replace(result_row.ROW, method="dsui", score=score) for score in (*scores, "entropy", "density_energy")]
    found = [(row.method, row.score) for row in with_mixtures(rows)]
    assert [pair for pair in found if pair[0] == "dsui"] == [("dsui", row.score) for row in rows]
    assert [pair for pair in found if pair[0] != "dsui"] == [("dsui, mixtures", score) for score in scores.values()]
