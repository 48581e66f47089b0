"""What the page of the paper shows: which rows count, which cells are best, and what is said of each claim."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from dsui.evaluation.paper_tables import paper_rows
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import Summary, summarize
from dsui.experiments.grid_file import load_grid
from dsui.report.columns import Figure
from dsui.report.table_forms import to_markdown
from studies.paper_cells import (
    ABLATION_CELLS,
    ACCURACY_CELLS,
    CELLS,
    NOISE_CELLS,
    OTHER_PAIR_CELLS,
    PAIR_CELLS,
    TINY_ATTACK_CELLS,
    Standing,
    ablation_line,
    in_paper,
    place_name,
    printed,
    standing,
)
from studies.paper_claims import CLAIMS, Evidence, claims_table, gather, verdict
from studies.paper_geometry import check_geometry, geometry_table
from studies.paper_lines import (
    NAMES,
    OPEN_SET,
    OURS,
    PARTS,
    RIVALS,
    SETTINGS,
    STREAMS,
    frozen_settings,
    read_paper_rows,
    row_files,
)
from studies.paper_page import render_part
from studies.paper_standings import count_table, difference_table
from studies.paper_tables import FULL, ablation_table, comparison_table
from studies.paper_verdicts import FAILS, HOLDS, Check, judge
from tests.support.result_row import ROW

CLASSIFIER, MIXTURES = STREAMS
DSUI = replace(ROW, recipe="paper, neck=False", split="all-classes:1", protocol="all in-domain images of test")
PLAIN = replace(DSUI, method="msp", objective=None, recipe="paper, average=ema", run="msp-0")
Folder = Callable[[Iterable[ResultRow]], Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def write(rows: Iterable[ResultRow], name: str = "paper-new") -> Path:
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{row.to_json()}\n" for row in rows))
        return tmp_path

    return write


def accuracies(row: ResultRow, values: Iterable[float], **changes: Any) -> list[ResultRow]:
    facts = {"task": "accuracy", "foreign": None, "score": "prediction", **changes}
    return [
        replace(row, **facts, seed=seed, run=f"{row.method}-{seed}", metrics={"accuracy": value})
        for seed, value in enumerate(values)
    ]


def line_cells(markdown: str) -> dict[str, list[str]]:
    found = (line.split("|")[1:-1] for line in markdown.splitlines() if line.startswith("|"))
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in found}


# Which rows count


def test_every_line_has_one_training_and_a_name() -> None:
    for grids in (SETTINGS, (OPEN_SET,)):
        labels = list(frozen_settings(*grids).values())
        assert sorted(labels) == sorted(set(labels))
        assert set(labels) <= set(NAMES)


def test_a_row_counts_with_the_frozen_settings_of_test_images_and_of_whole_runs(folder: Folder) -> None:
    rows = [
        *accuracies(DSUI, [0.91]),
        *accuracies(replace(DSUI, recipe="paper, neck=False, rho=9"), [0.92]),
        *accuracies(replace(DSUI, protocol="all in-domain images of held-out"), [0.93], data="cifar100"),
        *accuracies(replace(DSUI, split="neal-0:1"), [0.94], data="svhn"),
        *accuracies(replace(PLAIN, recipe="paper, average=ema, neck=False"), [0.95]),
    ]
    read = read_paper_rows(row_files(folder(rows)))
    assert [(row.method, row.metrics["accuracy"]) for row in read.rows] == [
        (OURS, 0.91),
        ("Baseline without neck", 0.95),
    ]
    assert read.unused == [("cifar10", "dsui", "paper, neck=False, rho=9")]


def test_tiny_imagenet_counts_at_32_pixels_alone(folder: Folder) -> None:
    own = accuracies(DSUI, [0.5], data="tiny-imagenet")
    small = accuracies(replace(DSUI, recipe="paper, neck=False, size=32"), [0.4], data="tiny-imagenet")
    read = read_paper_rows(row_files(folder([*own, *small])))
    assert [(row.method, row.metrics["accuracy"]) for row in read.rows] == [(OURS, 0.4)]
    assert read.unused == [("tiny-imagenet", "dsui", "paper, neck=False")]


def test_the_mixtures_are_a_line_by_the_same_measures(folder: Folder) -> None:
    scores = {"max_probability": 0.7, "density_max_probability": 0.8, "density_entropy": 0.9, "energy": 0.6}
    rows = [replace(DSUI, score=score, metrics={"auroc": value}) for score, value in scores.items()]
    read = read_paper_rows(row_files(folder(rows))).rows
    by_line = {(row.method, row.score): row.metrics["auroc"] for row in read}
    assert by_line[MIXTURES, "max_probability"] == 0.8
    assert by_line[MIXTURES, "entropy"] == 0.9
    assert by_line[CLASSIFIER, "max_probability"] == 0.7


def test_open_set_methods_stand_by_their_own_scores_where_the_paper_quotes_them(folder: Folder) -> None:
    known = replace(DSUI, method="g-openmax", recipe="paper", task="open-set", foreign="unknown", split="neal-0:1")
    scores = {"max_probability": 0.5, "entropy": 0.6, "energy": 0.7}
    rows = [replace(known, score=score, metrics={"auroc": value, "aupr": 0.1}) for score, value in scores.items()]
    for by_rows, shown in ((rows, 0.7), ([*rows, replace(rows[0], score="unknown", metrics={"auroc": 0.8})], 0.8)):
        (row,) = (row for row in read_paper_rows(row_files(folder(by_rows))).rows if row.method == "G-OpenMax")
        assert (row.score, dict(row.metrics)) == ("max_probability", {"auroc": shown})


def test_table_3_has_the_trainings_of_its_own_grid(folder: Folder) -> None:
    known = replace(DSUI, task="open-set", foreign="unknown", split="neal-0:1", metrics={"auroc": 0.8})
    trainings = {training for method, training in frozen_settings(OPEN_SET) if method == "dsui"}
    rows = [replace(known, recipe=recipe, run=recipe) for recipe in (*trainings, "paper, rho=9")]
    read = read_paper_rows(row_files(folder(rows)))
    assert {row.method for row in read.rows} == {OURS}
    assert len(read.rows) == len(trainings)
    assert read.unused == [("cifar10", "dsui", "paper, rho=9")]


# Cells


def test_the_cells_are_those_of_the_paper() -> None:
    assert {part: len(cells) for part, cells in CELLS.items()} == {
        "table2": 8,
        "figure3": 32,
        "figure5": 40,
        "table3": 8,
        "table4": 4,
        "figure6": 40,
    }
    for table in ("table2", "table3", "table4"):
        assert set(printed(table)[OURS]) == set(CELLS[table])
        assert {cell for cells in printed(table).values() for cell in cells} == set(CELLS[table])
    assert {cell for cells in printed("table1").values() for cell in cells} == set(ABLATION_CELLS)
    assert len({place_name(cell) for cell in (*PAIR_CELLS, *OTHER_PAIR_CELLS)}) == 12
    grid = {(cell.config.data, foreign) for cell in load_grid("ood-pairs").cells for foreign in cell.foreign}
    assert {(cell.data, cell.foreign) for cell in PAIR_CELLS} == grid


def test_every_printed_line_of_table_1_is_one_of_its_grid() -> None:
    labels = {cell.label for cell in load_grid("ablation").cells}
    lines = {ablation_line(row) for row in paper_rows("table1")}
    assert len(lines) == 8
    assert lines <= labels
    assert FULL in lines
    parts = {cell.label for cell in load_grid(PARTS).cells}
    assert {"all of DS-UI, K 8", "all of DS-UI, K 1"} <= parts


@pytest.mark.parametrize(
    ("line", "data", "backbone", "there"),
    [
        ("DPN", "svhn", "vgg16", True),
        ("DPN", "tiny-imagenet", "vgg16", False),
        ("SDE-Net", "cifar10", "resnet18", True),
        ("SDE-Net", "cifar10", "vgg16", False),
        ("Baseline without neck", "cifar10", "resnet18", False),
    ],
)
def test_a_figure_has_the_methods_of_table_2(line: str, data: str, backbone: str, there: bool) -> None:
    for task, score, metric in (("accuracy", "prediction", "accuracy"), ("misclassification", "entropy", "aupr")):
        assert in_paper(line, Figure(data, backbone, task, None, score, metric)) is there


def test_dsui_is_best_by_the_digits_shown_and_its_difference_is_to_the_best_rival() -> None:
    cell = ACCURACY_CELLS[1]
    runs = {OURS: [0.91233, 0.91231], "RKL": [0.91232, 0.91236, 0.91234], "DPN": [0.5, 0.6], "LogitNorm": [0.99, 0.98]}
    figures = {line: {cell: summarize(values)} for line, values in runs.items()}
    found = standing(figures, cell)
    assert (found.rival, found.best, found.run, found.whole) == ("RKL", True, True, False)
    assert found.difference < 0
    assert found.missing == ("Baseline", "MC dropout", "SDE-Net")
    expected = stats.ttest_ind(runs[OURS], runs["RKL"], equal_var=False).confidence_interval()
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert not standing(figures, cell, rivals=[*RIVALS.values(), "LogitNorm"]).best
    lower = {**figures, OURS: {cell: Summary(0.91224, None, 1)}}
    assert not standing(lower, cell).best
    assert standing(lower, cell).interval is None
    assert not standing({OURS: figures[OURS]}, cell).run
    assert not standing({"RKL": figures["RKL"]}, cell).run


# Claims

WON, LOST, OPEN = Check(True, whole=True), Check(False, whole=True), Check(None, whole=False)


@pytest.mark.parametrize(
    ("checks", "allowed", "word"),
    [
        ([WON, WON], 0, HOLDS),
        ([WON, LOST], 0, FAILS),
        ([WON, LOST], 1, HOLDS),
        ([LOST, LOST, WON], 1, FAILS),
        ([LOST, OPEN, OPEN], 0, FAILS),
        ([WON, OPEN, OPEN], 0, "not run yet: 2 of 3 cells"),
        ([WON, Check(True, whole=False)], 0, "not run yet: 1 of 2 cells"),
        ([LOST, OPEN], 1, "not run yet: 1 of 2 cells"),
        ([OPEN], 0, "not run yet: 1 of 1 cells"),
    ],
)
def test_a_claim_fails_holds_or_waits(checks: list[Check], allowed: int, word: str) -> None:
    found = judge(checks, allowed=allowed)
    assert found.word == word
    assert (found.figures == "") is all(check.holds is None for check in checks)


def everything(dsui: float = 0.9, mixtures: float = 0.9, rival: float = 0.8) -> Evidence:
    """Rows of all methods in all cells, with the same figure in each."""
    cells = [cell for of_part in CELLS.values() for cell in of_part] + [*OTHER_PAIR_CELLS, *TINY_ATTACK_CELLS]
    methods = {
        line: {cell: Summary(rival, 0.01, 3) for cell in cells if in_paper(line, cell)} for line in RIVALS.values()
    }
    methods |= {
        line: {cell: Summary(v, 0.01, 5) for cell in cells} for line, v in zip(STREAMS, (dsui, mixtures), strict=True)
    }
    tables = []
    for first, labels, backbone in (
        (FULL, {ablation_line(row) for row in paper_rows("table1")}, "vgg16"),
        ("all of DS-UI, K 8", {"all of DS-UI, K 1", "all of DS-UI, K 8"}, "resnet18"),
    ):
        own = [cell._replace(backbone=backbone) for cell in ABLATION_CELLS]
        endings = {"": dsui, MIXTURES.removeprefix(OURS): mixtures}
        tables.append(
            {
                f"{label}{ending}": {cell: Summary(value if label == first else rival, 0.01, 5) for cell in own}
                for label in labels
                for ending, value in endings.items()
            }
        )
    return Evidence(methods, *tables)


def changed(evidence: Evidence, line: str, cells: Iterable[Figure], mean: float | None) -> Evidence:
    """Another mean of one line in these cells, or no rows there."""
    cells = set(cells)
    return Evidence(
        *(
            {
                name: {
                    cell: replace(summary, mean=mean)
                    if mean is not None and name == line and cell in cells
                    else summary
                    for cell, summary in of.items()
                    if mean is not None or name != line or cell not in cells
                }
                for name, of in figures.items()
            }
            for figures in evidence
        )
    )


def words(evidence: Evidence, stream: str = CLASSIFIER) -> dict[str, str]:
    return {name: verdict(claim, evidence, stream).word for name, claim in CLAIMS.items()}


def test_all_claims_hold_where_dsui_is_ahead_everywhere_and_fail_where_it_is_behind() -> None:
    evidence = everything(dsui=0.9, mixtures=0.7)
    assert set(words(evidence).values()) == {HOLDS}
    assert set(words(evidence, MIXTURES).values()) == {FAILS}
    nothing = Evidence({}, {}, {})
    assert all(word.startswith("not run yet") for word in words(nothing).values())


@pytest.mark.parametrize(
    ("part", "claims"),
    [
        ("table2", {"accuracy"}),
        ("figure3", {"misclassification"}),
        ("table3", {"open-set", "open-set-significant"}),
        ("table4", {"noise"}),
        ("figure6", {"attacks", "attacks-best"}),
    ],
)
def test_one_cell_that_contradicts_a_claim_makes_it_fail_and_one_without_rows_makes_it_wait(
    part: str, claims: set[str]
) -> None:
    cell = next(cell for cell in CELLS[part] if part != "table3" or cell.data == "tiny-imagenet")
    behind = words(changed(everything(), OURS, [cell], 0.75))
    assert {name for name, word in behind.items() if word == FAILS} == claims
    for line in (OURS, "RKL"):
        waiting = words(changed(everything(), line, [cell], None))
        assert {name for name, word in waiting.items() if word.startswith("not run yet: 1 of ")} == claims
        assert {word for name, word in waiting.items() if name not in claims} == {HOLDS}


def test_one_of_ten_pairs_may_be_lost_and_two_may_not() -> None:
    first, second = PAIR_CELLS[0], PAIR_CELLS[4]
    assert words(changed(everything(), OURS, [first], 0.75))["pairs"] == HOLDS
    assert words(changed(everything(), OURS, PAIR_CELLS[:4], 0.75))["pairs"] == HOLDS
    assert words(changed(everything(), OURS, [first, second], 0.75))["pairs"] == FAILS
    assert words(changed(everything(), OURS, OTHER_PAIR_CELLS, 0.1))["pairs"] == HOLDS


def test_on_noise_sde_net_may_be_ahead_and_no_one_else() -> None:
    assert words(changed(everything(), "SDE-Net", NOISE_CELLS, 0.99))["noise"] == HOLDS
    assert words(changed(everything(), "RKL", NOISE_CELLS, 0.99))["noise"] == FAILS


def test_a_lead_within_the_deviations_is_no_significant_one() -> None:
    close = words(everything(rival=0.899))
    assert {name for name, word in close.items() if word == FAILS} == {"open-set-significant", "attacks"}


def test_more_components_and_reg_are_judged_by_their_own_lines() -> None:
    cell = ABLATION_CELLS[1]
    for label, claims in (
        ("dsui (K 1, push, reg)", {"components"}),
        ("dsui (K 8, push, kl)", {"reg"}),
        ("dsui (K 8, no push, reg)", {"both-parts"}),
        ("dsui (K 2, push, reg)", set[str]()),
    ):
        found = words(changed(everything(), label, [cell], 0.95))
        assert {name for name, word in found.items() if word == FAILS} == claims
        more_accurate = words(changed(everything(), label, [ABLATION_CELLS[0]], 0.95))
        assert set(more_accurate.values()) == {HOLDS}, "these claims are about detection"


def test_a_verdict_names_the_cell_where_dsui_is_furthest_behind() -> None:
    evidence = changed(everything(), OURS, [CELLS["figure3"][5]], 0.75)
    evidence = changed(evidence, OURS, [CELLS["figure3"][7]], 0.79)
    figures = verdict(CLAIMS["misclassification"], evidence, CLASSIFIER).figures
    assert figures.startswith("true in 30 of the 32 cells run (32 in all); smallest difference -5.00 (")
    assert figures.endswith("against Baseline in AUROC of Ent., CIFAR-10, ResNet18")


def test_counts_are_of_cells_with_rows_and_comparators_beyond_the_paper_count_apart() -> None:
    methods = {line: dict(cells) for line, cells in everything(mixtures=0.7).methods.items()}
    methods["LogitNorm"] = {cell: Summary(0.95, 0.01, 3) for cell in CELLS["table4"]}
    table = count_table(methods)
    assert "Of 132 cells that were run DS-UI has the best mean in 132 by its classifier, 0 by its mixtures." in table
    assert line_cells(table)["Table 4"] == ["4", "4", "4", "4", "0", "0", "0"]
    assert line_cells(table)["**all**"] == [f"**{number}**" for number in (132, 132, 132, 132, 0, 128, 0)]


# What is shown


def test_a_table_has_ours_above_the_papers_with_a_best_each_and_says_what_waits() -> None:
    here = ACCURACY_CELLS[1]
    methods = {
        "Baseline": {here: Summary(0.95, 0.001, 5)},
        OURS: {here: Summary(0.96, 0.001, 5)},
        MIXTURES: {here: Summary(0.9604, 0.002, 5)},
        "LogitNorm": {here: Summary(0.97, 0.001, 3)},
    }
    shown = line_cells(to_markdown(comparison_table("table2", "Table 2", methods)))
    order = ["Baseline", "MC dropout", "DPN", "RKL", "SDE-Net"]
    expected = [name for line in order for name in (line, f"{line} †")]
    assert list(shown)[2:] == [*expected, OURS, MIXTURES, f"{OURS} †", "LogitNorm"]
    assert shown["Baseline"][:3] == ["5", "not run", "95.00 ± 0.10 ✓"]
    assert shown["Baseline †"][2] == "<ins>92.56 ± 0.14</ins> ✓"
    assert shown[MIXTURES][2].endswith("96.04 ± 0.20</ins> \u00d7")
    assert shown[OURS][2] == "96.00 ± 0.10"
    assert shown[f"{OURS} †"][2] == "**93.09 ± 0.04**"
    assert shown["LogitNorm"][1:3] == ["-", "**97.00 ± 0.10** ✓"]
    assert shown["DPN"][-1] == shown["DPN †"][-1] == "-"
    assert shown["SDE-Net"][1] == "-"


def test_table_1_has_the_signs_of_the_paper_and_lines_of_its_grid() -> None:
    shown = line_cells(to_markdown(ablation_table("Table 1", everything().ablation)))
    assert shown["push ✓, Reg ○, K 8 †"][1] == "92.28 ± 0.76"
    assert shown["push -, Reg -, K 8"][1] == "<ins>80.00 ± 1.00</ins> ✓"
    assert shown["push ✓, Reg ✓, K 8"][1] == "**90.00 ± 1.00**"
    assert len([name for name in shown if name.endswith("†")]) == 8


def test_a_difference_names_the_best_rival_and_places_without_rows_are_listed() -> None:
    evidence = everything(dsui=0.81, mixtures=0.79)
    cells = CELLS["table4"]
    (_, _, ours, mixtures) = line_cells(difference_table(evidence.methods, cells)).values()
    found = Standing(cells[0], Summary(0.81, 0.01, 5), "Baseline", Summary(0.8, 0.01, 3), ())
    low, high = found.interval or (0.0, 0.0)
    assert ours == [f"**+1.00 ({100 * low:+.2f} to {100 * high:+.2f})** Baseline"] * 4 + ["5 of 5"]
    assert all(cell.startswith("-1.00 (") for cell in mixtures[:4])
    assert difference_table({}, PAIR_CELLS[:8]).endswith("not run yet: CIFAR-10 → SVHN; CIFAR-10 → Tiny ImageNet.")


def test_a_row_fills_its_cell_and_leaves_the_others(folder: Folder, tmp_path: Path) -> None:
    both = [*accuracies(DSUI, [0.9, 0.91]), *accuracies(PLAIN, [0.88, 0.89])]
    first = line_cells(render_part("table2", folder(both), "", "").markdown)
    assert first[OURS][2] == "**90.50 ± 0.71**"
    more = [*both, *accuracies(replace(DSUI, data="svhn", backbone="vgg16"), [0.96])]
    second = line_cells(render_part("table2", folder(more), "", "").markdown)
    assert second[OURS][2] == first[OURS][2]
    assert (first[OURS][5], second[OURS][5]) == ("not run", "96.00")
    assert "| accuracy is best in every cell | Table 2 | **not run yet: 8 of 8 cells**: true in 1" in claims_table(
        tmp_path
    )
    assert gather(folder(more)).methods[OURS][ACCURACY_CELLS[4]].mean == 0.96


def test_the_two_pairs_that_the_figure_lacks_stand_in_the_table_of_differences(folder: Folder) -> None:
    rows = [
        replace(row, task="ood", foreign="cifar100", score="entropy", metrics={"auroc": value, "aupr": 0.5})
        for row, value in ((DSUI, 0.9), (PLAIN, 0.8))
    ]
    shown = line_cells(render_part("figure5", folder(rows), "f", "l").markdown)
    cells = shown["CIFAR-10 → CIFAR-100 (not in the figure), by its classifier"]
    assert cells == ["not run", "**+10.00** Baseline", "not run", "**+0.00** Baseline", "1 of 5"]
    assert "CIFAR-10 → SVHN, by its classifier" not in shown


def test_the_settings_say_what_waits_in_table_3_and_elsewhere(folder: Folder) -> None:
    shown = line_cells(render_part("settings", folder(accuracies(DSUI, [0.9])), "", "").markdown)
    assert shown[OURS] == ["`paper, neck=False`"]
    assert shown["Baseline (not run yet)"] == ["`paper, average=ema`"]
    of_table_3 = [name for name in shown if "in Table 3" in name]
    assert of_table_3
    assert all(name.endswith("(not run yet)") for name in of_table_3)


def test_figure_1_is_judged_on_every_data_set_that_was_measured(tmp_path: Path) -> None:
    def write(name: str, data: str, ours: tuple[float, float]) -> None:
        rows = [
            {"variant": variant, "seed": seed, "data": data, "within": within + seed / 100, "between": between}
            for variant, (within, between) in {"plain CE": (0.5, 1.2), "bounded": ours}.items()
            for seed in range(3)
        ]
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    assert check_geometry(tmp_path).verdict == "**not run yet: 2 of 2 data sets**: not run on digits, cifar10 yet"
    write("geometry.jsonl", "digits", (0.4, 1.3))
    assert check_geometry(tmp_path).verdict.startswith(
        "**not run yet: 1 of 2 data sets**: on digits distances differ by -0.100"
    )
    write("geometry-cifar10.jsonl", "cifar10", (0.4, 1.3))
    assert check_geometry(tmp_path).verdict.startswith("**holds**")
    assert len(line_cells(geometry_table(tmp_path))) >= 3
    write("geometry-cifar10.jsonl", "cifar10", (0.4, 1.1))
    assert check_geometry(tmp_path).verdict.startswith("**fails**")


def test_an_unknown_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the paper has no part table9; its parts are counts"):
        render_part("table9", tmp_path, "", "")


# Figures


def test_figures_of_rows_are_drawn_with_what_is_there(folder: Folder) -> None:
    of_errors = [replace(row, task="misclassification", foreign=None) for row in (DSUI, PLAIN)]
    rows = [
        replace(row, score=score, data=data, metrics={"auroc": 0.9, "aupr": 0.5})
        for row in of_errors
        for data in ("cifar10", "svhn")
        for score in ("max_probability", "entropy")
    ]
    part = render_part("figure3", folder(rows), "own-name", "figures/own-name.svg")
    assert part.drawing is not None
    assert part.drawing.name == "own-name"
    first = part.drawing.figure.axes[0]
    places = {label.get_text().replace("\n", " "): label.get_position()[1] for label in first.get_yticklabels()}
    dots = {str(each.get_label()): each[0].get_xydata() for each in first.containers}
    assert list(dots) == ["Baseline", OURS]
    assert [x for x, _ in dots[OURS]] == pytest.approx([90, 90])
    for lines in dots.values():
        nearest = [min(places, key=lambda name: abs(places[name] - y)) for _, y in lines]
        assert nearest == ["CIFAR-10, ResNet18", "SVHN, ResNet18"]
    assert "](figures/own-name.svg)" in part.markdown
    assert "Number of runs: Baseline 1, DS-UI 1." in part.markdown
    assert "AUROC of Max.P.\nmethod," in part.data
    assert render_part("figure6", folder(rows), "f", "l").drawing is None


def test_figures_of_single_images_wait_for_their_points(tmp_path: Path) -> None:
    for part, study in (("figure2", "distributions"), ("figure4", "distributions"), ("figure7", "tsne")):
        waiting = render_part(part, tmp_path, part, f"figures/{part}.svg")
        assert waiting.drawing is None
        assert f"`dsui reproduce {study}` draws it" in waiting.markdown
    moments = "dsui,0,{},{},0.9,0.1,5,{},,\n"
    profile = "dsui,0,{},,,,,,{},{}\n"
    (tmp_path / "paper-distributions.csv").write_text(
        "method,seed,x,score,mean,deviation,images,foreign,image,log_density\n"
        + moments.format("cat", "entropy", 0)
        + moments.format("svhn", "entropy", 1)
        + profile.format("cat", "in-domain", -3.0)
        + profile.format("cat", "svhn", -9.0)
    )
    (tmp_path / "paper-tsne.csv").write_text(
        "method,seed,panel,class,x,y\n"
        + "".join(f"{m},0,{p},cat,{x},1\n" for m in ("msp", "dsui") for p in ("own", "with foreign") for x in (0, 1))
        + "dsui,0,with foreign,svhn,0,0\n"
    )
    described = {
        "figure2": "densest in cat at -3 nats",
        "figure4": "cat 0.9 ± 0.1, svhn 0.9 ± 0.1",
        "figure7": "2 images and 1 of svhn",
    }
    for part, words in described.items():
        drawn = render_part(part, tmp_path, part, f"figures/{part}.svg")
        assert drawn.drawing is not None
        assert drawn.drawing.name == part
        assert words in drawn.drawing.description
        assert f"](figures/{part}.svg)" in drawn.markdown
