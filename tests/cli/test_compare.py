"""`dsui compare` on rows written by hand."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from scipy import stats
from typer.testing import CliRunner, Result

from dsui.cli import app, main
from dsui.errors import DsuiError
from dsui.evaluation.results import append
from tests.support.comparison_rows import ROW, rows_of

runner = CliRunner()
FIGURES = {"dsui": [0.91, 0.93, 0.95], "msp": [0.80, 0.81, 0.83], "rkl": [0.90, 0.94, 0.96]}


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    folders = []
    for method, figures in FIGURES.items():
        for seed, auroc in enumerate(figures):
            folders.append(tmp_path / "runs" / f"{method}-{seed}")
            folders[-1].mkdir(parents=True)
            append(folders[-1] / "results.jsonl", rows_of(method, seed, auroc))
    return folders


def dsui(*arguments: str | Path) -> Result:
    return runner.invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)


def lines(*arguments: str | Path) -> dict[str, dict[str, str]]:
    """The CSV table by method."""
    result = dsui(*arguments, "--format", "csv")
    assert result.exit_code == 0
    return {line["method"]: line for line in csv.DictReader(io.StringIO(result.stdout))}


def fails(*arguments: str | Path) -> str:
    with pytest.raises((DsuiError, ValueError)) as mistake:
        dsui(*arguments)
    return str(mistake.value)


def test_methods_stand_beside_each_other_with_means_deviations_and_students_test(runs: list[Path]) -> None:
    table = lines(*runs, "--task", "ood")
    assert list(table) == list(FIGURES)
    for method, figures in FIGURES.items():
        assert float(table[method]["AUROC"]) == mean(figures)
        assert float(table[method]["AUROC deviation"]) == stdev(figures)
        assert table[method]["AUROC runs"] == "3"
        if method != "dsui":
            p = stats.ttest_ind(FIGURES["dsui"], figures).pvalue
            assert float(table[method]["AUROC p"]) == pytest.approx(p)
    assert [table[method]["AUROC mark"] for method in FIGURES] == ["", "✓", "×"]  # noqa: RUF001


def test_accuracy_stands_for_its_task_and_ranking_metrics_for_the_others(runs: list[Path]) -> None:
    header = list(lines(*runs)["dsui"])
    assert [name for name in header if not name.endswith((" deviation", " runs", " p", " mark"))] == [
        *("method", "quoted"),
        *("prediction accuracy", "ood → photos Max.P. AUROC"),
    ]


def test_filters_choose_the_columns(runs: list[Path]) -> None:
    def shown(*choice: str) -> set[str]:
        return set(json.loads(dsui(*runs, *choice, "--format", "json").stdout)["title"].split(", "))

    assert "log-density" in shown("--score", "log_density")
    assert "→ photos" in shown("--metric", "fpr95")
    assert lines(*runs, "--metric", "fpr95", "--score", "")["msp"]["FPR95"] == str(mean(1 - a for a in FIGURES["msp"]))


def test_welch_and_holm_change_the_p_values_as_they_should(runs: list[Path]) -> None:
    welch = lines(*runs, "--task", "ood", "--welch")
    for method in ("msp", "rkl"):
        p = stats.ttest_ind(FIGURES["dsui"], FIGURES[method], equal_var=False).pvalue
        assert float(welch[method]["AUROC p"]) == pytest.approx(p)
    plain, holm = (lines(*runs, "--task", "ood", *more) for more in ([], ["--holm"]))
    smaller, larger = sorted(float(plain[method]["AUROC p"]) for method in ("msp", "rkl"))
    found = sorted(float(holm[method]["AUROC p"]) for method in ("msp", "rkl"))
    assert found == [2 * smaller, larger]
    assert "Holm-corrected over 2 tests" in dsui(*runs, "--task", "ood", "--holm", "--format", "markdown").stdout


def test_of_a_run_evaluated_twice_the_last_rows_count(runs: list[Path]) -> None:
    append(runs[0] / "results.jsonl", rows_of("dsui", 0, 0.5))
    table = lines(*runs, "--task", "ood")
    assert float(table["dsui"]["AUROC"]) == mean([0.5, *FIGURES["dsui"][1:]])
    assert table["dsui"]["AUROC runs"] == "3"


def test_results_may_be_files_or_folders_of_them(runs: list[Path], tmp_path: Path) -> None:
    whole = lines(*runs)
    (tmp_path / "results").mkdir()
    for run in runs:
        (tmp_path / "results" / f"{run.name}.jsonl").write_bytes((run / "results.jsonl").read_bytes())
    one = tmp_path / "one.jsonl"
    one.write_bytes(b"".join((run / "results.jsonl").read_bytes() for run in runs))
    assert lines("--results", tmp_path / "results") == whole
    assert lines("--results", one) == whole


def test_a_broken_line_is_named_and_the_rest_is_used(runs: list[Path]) -> None:
    whole = lines(*runs)
    path = runs[0] / "results.jsonl"
    path.write_bytes(b'{"run": "torn\n' + path.read_bytes())
    (unevaluated := runs[0].with_name("unevaluated")).mkdir()
    result = dsui(*runs, unevaluated, "--format", "csv")
    assert {line["method"]: line for line in csv.DictReader(io.StringIO(result.stdout))} == whole
    notes = result.stderr.splitlines()
    assert len(notes) == 2
    assert notes[0] == f"Note: {unevaluated} has no results yet; run `dsui evaluate {unevaluated}`."
    assert notes[1] == f"Note: {path} line 1 is not a results row: it is not whole JSON."
    (unevaluated / "results.jsonl").touch()  # as an evaluation that was interrupted leaves it
    assert dsui(*runs, unevaluated).stderr.splitlines() == notes


def test_a_file_that_holds_something_else_is_not_shown_line_by_line(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(30 * '{"epoch": 0}\n')
    notes = dsui(*runs, "--results", tmp_path / "log.jsonl").stderr.splitlines()
    assert len(notes) == 6
    assert notes[-1] == "Note: 25 more lines cannot be used."


def test_formats_hold_the_same_figures(runs: list[Path], tmp_path: Path) -> None:
    shown = {form: dsui(*runs, "--task", "ood", "--format", form).stdout for form in ("markdown", "latex", "json")}
    table = json.loads(shown["json"])
    assert {line["label"]: line["cells"][0]["mean"] for line in table["lines"]} == {
        method: mean(figures) for method, figures in FIGURES.items()
    }
    for text in ("93.00 ± 2.00", "81.33 ± 1.53", "93.33 ± 3.06"):
        assert text in shown["markdown"]
        assert text.replace("±", r"$\pm$") in shown["latex"]
        assert text in dsui(*runs, "--task", "ood").stdout
    for name, form in (("table.md", "markdown"), ("table.TEX", "latex"), ("table.json", "json"), ("table", "markdown")):
        assert dsui(*runs, "--task", "ood", "--out", tmp_path / name).stdout == ""
        assert (tmp_path / name).read_text() == shown[form]
    dsui(*runs, "--task", "ood", "--out", tmp_path / "table.csv", "--format", "json")
    assert (tmp_path / "table.csv").read_text() == shown["json"], "--format decides where it is given"
    assert "choose another --out" in fails(*runs, "--out", tmp_path / "no" / "table.md")


def test_the_reference_may_be_a_method_or_one_of_its_lines(runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "posterior.jsonl"
    for seed, auroc in enumerate((0.7, 0.71, 0.72)):
        rows = rows_of("dsui", seed, auroc)
        append(other, [replace(row, objective="posterior", recipe="modern", run=f"p-{seed}") for row in rows])
    both: list[str | Path] = [*runs, "--results", other, "--task", "ood"]
    assert lines(*both, "--reference", "msp")["dsui (bounded, demo)"]["AUROC mark"] == "✓"
    assert lines(*both, "--reference", "dsui (posterior, modern)")["msp"]["AUROC mark"] == "✓"
    assert "Nothing is tested: 2 lines are dsui" in dsui(*both, "--format", "markdown").stdout


def test_the_papers_own_figures_stand_apart(tmp_path: Path) -> None:
    """In the same columns, whether a row says which stream its accuracy is of or not."""
    for seed, stream in enumerate(("prediction", None)):
        row = replace(ROW, data="cifar100", backbone="resnet18", run=str(seed), seed=seed)
        noise = replace(row, task="noise", foreign="noise", metrics={"auroc": 0.9 + seed / 100})
        accuracy = replace(row, task="accuracy", foreign=None, score=stream, metrics={"accuracy": 0.7 + seed / 100})
        append(tmp_path / "two.jsonl", [noise, accuracy])
    arguments = ["--results", str(tmp_path / "two.jsonl"), "--data", "cifar100", "--metric", "accuracy,auroc"]
    arguments.append("--published")
    table = json.loads(dsui(*arguments, "--score", "max_probability,prediction", "--format", "json").stdout)
    columns = [column["header"] for column in table["columns"] if "vgg16" not in column["header"]]
    assert len(columns) == 2
    lines = {(line["label"], line["quoted"]): line["cells"] for line in table["lines"]}
    assert [cell["runs"] for cell in lines["dsui", False]][:2] == [2, 2]
    assert [cell["runs"] for cell in lines["dsui", True]][:2] == [5, 5]
    assert "quoted as published, not run here" in " ".join(dsui(*arguments).stdout.split())


def test_a_sentence_for_every_mistake(runs: list[Path], tmp_path: Path) -> None:
    assert "no method for --reference 'mps'; did you mean msp? There are dsui, msp, rkl." in fails(
        *runs, "--reference", "mps"
    )
    assert "no task 'odd'; did you mean ood?" in fails(*runs, "--task", "odd")
    assert "no score 'log-density'; did you mean log_density?" in fails(*runs, "--score", "log-density")
    assert "no metric 'auc'; did you mean auroc?" in fails(*runs, "--metric", "auc")
    assert "no data set 'digit'; did you mean digits?" in fails(*runs, "--data", "digit")
    assert "no figure is left; loosen" in fails(*runs, "--task", "accuracy", "--metric", "auroc")
    assert "name evaluated runs, or a file or folder of results with --results." in fails()
    assert f"{tmp_path} holds no .jsonl file; name evaluated runs" in fails("--results", tmp_path)
    assert "absent is not the folder of a run; name the --out of a `dsui train`." in fails(tmp_path / "absent")


@pytest.mark.parametrize(
    ("words", "status"), [([], 0), (["--task", "accuracy", "--metric", "auroc"], 1), (["--format", "html"], 2)]
)
def test_a_comparison_exits_with_0_1_or_2(
    runs: list[Path],
    words: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["dsui", "compare", *map(str, runs), *words])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == status
    assert bool(capsys.readouterr().err) == (status > 0)


def test_calibration_has_its_columns(runs: list[Path]) -> None:
    assert "NLL" in dsui(*runs, "--metric", "nll").stdout


def test_rivals_alone_are_compared_and_nothing_is_tested(runs: list[Path]) -> None:
    rivals = [run for run in runs if "dsui" not in run.name]
    result = dsui(*rivals, "--task", "ood")
    assert result.exit_code == 0
    assert "Nothing is tested: no line is dsui." in result.stdout
    assert fails(*rivals, "--reference", "dsui").startswith("no method for --reference 'dsui'")


def test_all_means_all(runs: list[Path]) -> None:
    table = lines(*runs, "--task", "all", "--score", "all", "--metric", "all", "--data", "all")
    assert {"ood → photos log-density AUROC", "ood → photos Max.P. FPR95"} <= set(table["msp"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"split": "0,1:x"}, "Figures of different images stand in one column (accuracy, ood)"),
        ({"n_positive": 30}, "Figures of different images stand in one column (ood)"),
        ({}, None),
    ],
)
def test_figures_of_different_images_in_one_column_are_told(
    tmp_path: Path, changes: dict[str, Any], told: str | None
) -> None:
    first = [replace(row, split="0,2:x") if "split" in changes else row for row in rows_of("dsui", 0, 0.9)]
    other = [replace(row, **changes) for row in rows_of("msp", 0, 0.8)]
    append(tmp_path / "rows.jsonl", [*first, *other])
    said = " ".join(dsui("--results", tmp_path / "rows.jsonl").stdout.split())
    assert (told in said) if told else ("different images" not in said)


def test_methods_asked_about_different_unknown_classes_are_told(tmp_path: Path) -> None:
    for method, split in (("dsui", "neal-0"), ("msp", "neal-1")):
        rows = [replace(row, task="open-set", foreign="unknown", split=f"{split}:x") for row in rows_of(method, 0, 0.9)]
        append(tmp_path / "rows.jsonl", rows[1:])
    said = " ".join(dsui("--results", tmp_path / "rows.jsonl").stdout.split())
    assert "Known classes in open-set tests: neal-0; neal-1. Not all methods know the same classes" in said


def shown(runs: list[Path], *words: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["compare", *map(str, runs), *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_terminal_has_a_table_for_each_question_and_says_how_to_see_more(runs: list[Path]) -> None:
    text = shown(runs)
    titles = [line for line in text.splitlines() if line.startswith(("Accuracy and", "Finding"))]
    assert titles == ["Accuracy and calibration", "Finding foreign images: photos (1,500 images), by Max.P."]
    assert [line.split()[0] for line in text.splitlines() if "±" in line and "Mean" not in line] == 2 * list(FIGURES)
    assert "More: --scores all" in text
    for asked in (["--quiet"], ["--scores", "all"], ["--metrics", "fpr95"], ["--wide"]):
        assert "More:" not in shown(runs, *asked)


def test_every_score_is_shown_when_asked_for(runs: list[Path]) -> None:
    text = shown(runs, "--scores", "all")
    for score in ("Max.P.", "log-density"):
        assert text.count(f"by {score}\n") == 1
    assert "log-density" not in shown(runs)
    assert "by log-density\n" in shown(runs, "--scores", "log_density")


def test_one_wide_table_is_what_files_hold(runs: list[Path], tmp_path: Path) -> None:
    """As ever: the scores of the wide table are no others because a terminal shows fewer."""
    dsui(*runs, "--out", tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == dsui(*runs, "--format", "csv").stdout
    assert json.loads(dsui(*runs, "--json").stdout) == json.loads(dsui(*runs, "--format", "json").stdout)
    wide = shown(runs, "--wide", columns=200)
    assert wide.count("method") == 1
    assert "Finding" not in wide
    assert "→ photos" in wide


def test_settings_that_differ_stand_once_below(runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    for seed, auroc in enumerate((0.7, 0.71, 0.72)):
        rows = rows_of("dsui", seed, auroc)
        append(other, [replace(row, recipe="demo, rho=100, swa_start=0.6", run=f"p-{seed}") for row in rows])
    for columns in (60, 80, 120):
        text = shown(runs, "--results", str(other), columns=columns)
        assert max(map(len, text.splitlines())) <= columns
        assert text.count("rho=100") == 1
        assert "\nAll  demo" in text
        assert "\nB    rho=100, swa_start=0.6" in text
        assert text.count("dsui B") >= 2
    assert "Nothing is tested: 2 lines are dsui" in " ".join(text.split())


@pytest.mark.parametrize("name", ["dsui B", "dsui (demo, rho=100)"])
def test_a_line_is_made_the_reference_by_its_letter_or_its_settings(
    runs: list[Path], tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other.jsonl"
    for seed, auroc in enumerate((0.7, 0.71, 0.72)):
        append(other, [replace(row, recipe="demo, rho=100", run=f"p-{seed}") for row in rows_of("dsui", seed, auroc)])
    words = ["--results", str(other), "--reference", name]
    assert "differs from dsui B" in " ".join(shown(runs, *words).split())
    result = runner.invoke(app, ["compare", *map(str, runs), "--results", str(other), "--reference", "dsui C"])
    assert "no method for --reference 'dsui C'; did you mean dsui" in str(result.exception)
