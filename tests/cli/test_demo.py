"""`dsui demo` itself, its networks trained for an epoch or two, and two methods in place of four."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dsui.cli import app
from dsui.errors import DsuiError
from dsui.evaluation.statistics import ALIKE, DIFFERENT
from dsui.experiments import demonstration, demonstration_runs, engines
from dsui.experiments.demonstration import glossary
from dsui.experiments.grid import Job
from dsui.experiments.grid_file import parse_grid
from dsui.experiments.study import Study
from dsui.report.figures import embedding
from tests.support.tiny_demo import tiny_demo

runner = CliRunner()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(demonstration_runs, "grid_text", tiny_demo)
    monkeypatch.setattr(embedding, "POINTS", 40)


def demo(*arguments: str | Path, columns: int = 120) -> Result:
    return runner.invoke(
        app, ["demo", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": str(columns), "TERM": "dumb"}
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A finished demo of two seeds, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(demonstration_runs, "grid_text", tiny_demo)
        patch.setattr(embedding, "POINTS", 40)
        return out, demo("--seeds", "2", "--out", out)


def test_it_prints_one_table_with_deviations_and_marks_and_says_where_the_report_is(
    shelf: tuple[Path, Result],
) -> None:
    out, result = shelf
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for heading in ("accuracy", "errors", "photos", "unseen", "noise", "FGSM 0.1"):
        assert heading in words
    lines = [line for line in result.stdout.splitlines() if re.match(r"(dsui|msp) .*±", line)]
    assert [len(re.findall(r"\d+\.\d ± +\d+\.\d", line)) for line in lines] == [6, 6]
    assert re.fullmatch(f"[^{DIFFERENT}{ALIKE}]*", lines[0])
    assert len(re.findall(f"[{DIFFERENT}{ALIKE}]", lines[1])) == 6
    assert "Mean ± deviation over 2 runs." in words
    assert "(Student's t-test, p < 0.05)." in words
    assert "A demonstration, not a proof: the settings were chosen on these digits" in words
    assert re.search(r"DS-UI is better in \d of 6 comparisons, worse in \d, and \d are within chance\.", words)
    assert f"The report is {out / 'report.html'}" in result.stdout
    assert "8 networks to train" in result.stderr
    assert "\x1b" not in result.output
    assert "━" not in result.output


def test_the_page_holds_the_table_the_figures_and_three_runs_in_full(shelf: tuple[Path, Result]) -> None:
    text = (shelf[0] / "report.html").read_text()
    assert re.findall(r'<h2 id="[^"]*">([^<]*)</h2>', text) == [
        "In short",
        "Verdict",
        "Results",
        "Across data sets and attacks",
        "Run dsui, 10 digits, seed 0",
        "Run msp, 10 digits, seed 0",
        "Run dsui, 6 digits, seed 0",
        "How this page was made",
    ]
    figures = set(re.findall(r'<figure id="([^"]+)"', text))
    for name in ("pairs-auroc-max-probability", "fgsm-aupr-max-probability"):
        assert name in figures
    for name in (
        "profile", "components", "tsne", "tsne-foreign", "reliability", "errors-roc", "errors-precision-recall",
        "errors-risk-coverage", "distribution-entropy", "distribution-max-probability", "foreign-roc",
    ):  # fmt: skip
        assert f"run-1-dsui-10-digits-seed-0-{name}" in figures
    assert "A demonstration, not a proof" in text
    assert "msp, 6 digits, seed 1" in text, "the other runs are among those it was made of"
    assert "No attack has been evaluated" not in text


def test_a_second_time_nothing_is_trained_or_drawn_and_the_table_is_the_same(shelf: tuple[Path, Result]) -> None:
    out, first = shelf
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = demo("--seeds", "2", "--out", out)
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    changed = {str(path.relative_to(out)) for path in after if before.get(path) != after[path]}
    assert changed <= {"demo.yaml", "results.jsonl"}
    assert again.stderr == ""
    told = re.compile(r"took \d+ s")
    assert told.sub("", again.stdout) == told.sub("", first.stdout)


def test_json_is_one_document_and_quiet_is_silent(shelf: tuple[Path, Result]) -> None:
    out, _ = shelf
    document = json.loads(demo("--seeds", "2", "--out", out, "--json").stdout)
    assert [line["label"] for line in document["table"]["lines"]] == ["dsui", "msp"]
    assert document["table"]["lines"][1]["cells"][0].keys() >= {"mean", "deviation", "runs", "p", "mark"}
    assert Path(document["report"]).is_file()
    rows = [json.loads(line) for line in Path(document["results"]).read_text().splitlines()]
    assert {row["task"] for row in rows} == {"accuracy", "misclassification", "ood", "open-set", "noise", "fgsm"}
    assert {row["seed"] for row in rows} == {0, 1}
    assert document["verdict"].startswith("Against its rivals DS-UI")
    attacked = [row for row in rows if (row["task"], row["foreign"], row["score"]) == ("fgsm", 0.1, "prediction")]
    means = {
        method: statistics.mean(row["metrics"]["accuracy"] for row in attacked if row["method"] == method)
        for method in ("dsui", "msp")
    }
    told = ", ".join(f"{method} {100 * mean:.1f}" for method, mean in means.items())
    assert f"Still right after FGSM 0.1, in %: {told}." in document["table"]["note"]
    assert demo("--seeds", "2", "--out", out, "--quiet").output == ""


def test_fewer_seeds_are_another_report_and_one_is_too_few_for_a_test(
    shelf: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(shelf[0], tmp_path / "copy"))
    drawn: list[int] = []
    monkeypatch.setattr(demonstration, "write_report", lambda study, *_: drawn.append(len(study.grid.cells)))
    result = demo("--seeds", "1", "--out", out)
    words = " ".join(result.stdout.split())
    assert drawn == [4]
    assert not (out / "report.html").exists(), "the old one is of other runs"
    assert result.stderr == "", "nothing is trained"
    assert "Nothing is tested: fewer than two runs." in words
    assert "and nothing is tested, since there is only one run of each" in words


def test_the_table_keeps_to_a_narrow_terminal(shelf: tuple[Path, Result]) -> None:
    table = demo("--seeds", "2", "--out", shelf[0], columns=80).stdout.split("Mean ±")[0]
    assert table.count("AUROC") == 5
    assert max(map(len, table.splitlines())) <= 80


def test_the_runs_can_be_compared_and_shown_by_the_other_commands(shelf: tuple[Path, Result]) -> None:
    runs = sorted(map(str, (shelf[0] / "runs").iterdir()))
    result = runner.invoke(app, ["compare", *runs, "--task", "fgsm", "--score", "uncertainty"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "over 2 runs" in result.stdout


def test_a_stopped_demo_says_how_to_go_on(
    shelf: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "run_in_processes", lambda *_, **__: False)  # as it answers Ctrl-C
    with pytest.raises(DsuiError, match=r"stopped with 0 of 4 runs done and nothing lost; the same command continues"):
        demo("--seeds", "1", "--out", tmp_path / "new")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    out = Path(shutil.copytree(shelf[0], tmp_path / "copy"))
    (out / "report.html").unlink()
    monkeypatch.setattr(demonstration, "write_report", stop)
    with pytest.raises(DsuiError, match=rf"stopped with 8 of 8 runs done and nothing lost.*\(folder {out}\)\.$"):
        demo("--seeds", "2", "--out", out)


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            DsuiError, match=r"cannot be written to \((File exists|Not a directory)\); choose another --out\.$"
        ):
            demo("--out", out)


def test_a_run_that_failed_is_named_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(jobs: list[Job], *_: object, **__: object) -> bool:
        Study(parse_grid(tiny_demo(1), "demo"), tmp_path).fail(jobs[0][0], "the disk is full.")
        return True

    monkeypatch.setattr(engines, "run_in_processes", fail)
    with pytest.raises(DsuiError, match=r"^4 of 4 runs failed; dsui, digits-256, small, .*seed 0: the disk is full\. "):
        demo("--seeds", "1", "--out", tmp_path)


def test_every_word_of_the_table_is_explained(shelf: tuple[Path, Result]) -> None:
    words = dict(glossary(demonstration.results_table(Study(parse_grid(tiny_demo(2), "demo"), shelf[0]))))
    assert words.keys() == {"dsui", "msp", "accuracy", "errors", "photos", "unseen", "noise", "FGSM 0.1", "AUROC"}
