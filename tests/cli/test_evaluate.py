"""`dsui evaluate` on a run of two epochs that the command line trained itself."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from dsui.cli import app, main
from dsui.cli.evaluate import evaluate
from dsui.data.registry import load
from dsui.errors import DsuiError
from dsui.evaluation import TASKS
from dsui.evaluation.results import ResultRow, read
from dsui.evaluation.tasks import EPSILONS
from dsui.runs import files
from tests.support import digit_runs

runner = CliRunner()
TRAIN = ["train", "--backbone", "small", "--recipe", "demo", "--set", "epochs=2", "--device", "cpu", "--quiet"]
MISSED = ["--tasks", "misclassification"]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained once: "msp" on all digits, "open" on six of them with a tenth held out."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in {"msp": [], "open": ["--known", "0,1,2,3,4,5", "--calibration", "0.1"]}.items():
        arguments = [*TRAIN, "--data", "digits", "--method", "msp", *options, "--out", str(folder / name)]
        assert runner.invoke(app, arguments, catch_exceptions=False).exit_code == 0
    return folder


@pytest.fixture
def run(shelf: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shelf / "msp", tmp_path / "msp"))


def dsui(*arguments: str | Path) -> Result:
    return runner.invoke(app, [*map(str, arguments)], catch_exceptions=False)


def rows_in(run: Path) -> list[ResultRow]:
    rows, problems = read([run / "results.jsonl"])
    assert problems == []
    return rows


def test_all_tasks_are_asked_and_every_row_is_kept(shelf: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(shelf / "open", tmp_path / "open"))
    result = dsui("evaluate", run, "--tasks", "all", "--epsilons", "0.1", "--root", tmp_path)
    assert result.exit_code == 0
    rows = rows_in(run)
    assert list(dict.fromkeys(row.task for row in rows)) == ["accuracy", *TASKS]
    assert {row.foreign for row in rows} == {None, "photos", "unknown", "noise", 0.1}
    assert "open: msp on digits, small, recipe demo, epochs=2, calibration=0.1, seed 0" in result.stdout
    questions = ("Accuracy", "errors", "foreign images: photos", "unknown classes", "noise", "attacks by FGSM: ε 0.1")
    for words in questions:
        assert words in result.stdout
    held = dsui("evaluate", run, *MISSED, "--on", "held-out", "--json")
    assert {json.loads(line)["protocol"] for line in held.stdout.splitlines()} == {
        f"{task}, all in-domain images of held-out" for task in ("accuracy", "misclassification")
    }


def test_an_evaluation_opens_with_a_verdict_on_all_that_is_known_of_the_run(run: Path) -> None:
    first = " ".join(dsui("evaluate", run, *MISSED).stdout.split())
    assert first.startswith("Not enough is known to use this model: no foreign images were shown to it.")
    assert f"Next: dsui evaluate {run} --foreign folder:PATH" in first
    assert re.search(r"yes It is right in 9\d(\.\d)? % of 797 test images", first)
    second = " ".join(dsui("evaluate", run, "--tasks", "ood,noise", "--foreign", "photos").stdout.split())
    by_score = {row.foreign: row.metrics["fpr95"] for row in rows_in(run) if row.score == "uncertainty" and row.foreign}
    worst = max(by_score, key=lambda name: by_score[name])
    grade = "Do not use this model" if by_score[worst] > 0.5 else "Use this model with care"
    assert by_score[worst] > 0.2, "two epochs do not make a model that turns foreign images away"
    assert second.startswith(f"{grade}: {100 * by_score[worst]:.0f} % of ")
    assert re.search(r"yes It is right in 9\d(\.\d)? % of 797 test images", second), "of the first evaluation"


def test_the_verdict_is_a_field_of_the_first_json_row_and_not_in_the_file(run: Path) -> None:
    first, *others = [json.loads(line) for line in dsui("evaluate", run, *MISSED, "--json").stdout.splitlines()]
    assert first["verdict"]["grade"] == "not enough known"
    assert first["verdict"]["answers"] == {
        "right": "yes", "errors": "yes", "foreign": "unknown", "calibrated": first["verdict"]["answers"]["calibrated"]
    }  # fmt: skip
    assert first["verdict"]["next_step"].startswith("dsui evaluate ")
    assert not any("verdict" in row for row in others)
    assert "verdict" not in (run / "results.jsonl").read_text()


def test_tables_for_programs_and_files_have_the_verdict_beside_them(run: Path, tmp_path: Path) -> None:
    for option in (["--format", "csv"], ["--out", str(tmp_path / "table.md")]):
        result = dsui("evaluate", run, *MISSED, *option)
        assert "Not enough is known" in result.stderr
        assert "Not enough is known" not in result.stdout
    assert "Not enough is known" not in (tmp_path / "table.md").read_text()


def test_held_out_images_are_judged_by_themselves(shelf: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(shelf / "open", tmp_path / "open"))
    dsui("evaluate", run, *MISSED, "--quiet")
    assert "60 held-out images" in " ".join(dsui("evaluate", run, *MISSED, "--on", "held-out").stdout.split())


def test_all_means_what_a_run_can_be_asked(run: Path, tmp_path: Path) -> None:
    assert dsui("evaluate", run, "--tasks", "all", "--epsilons", "0.1", "--root", tmp_path).exit_code == 0
    assert {row.task for row in rows_in(run)} == {"accuracy", *TASKS} - {"open-set"}
    assert {row.foreign for row in rows_in(run)} == {None, "photos", "noise", 0.1}
    assert len(EPSILONS) == 13


@pytest.mark.parametrize(
    ("words", "strengths"), [([], 0), (["--tasks", "all"], 13), (["--tasks", "fgsm"], 13), (["--epsilons", "0.1"], 1)]
)
def test_a_run_is_attacked_only_when_somebody_asks(run: Path, tmp_path: Path, words: list[str], strengths: int) -> None:
    result = dsui("evaluate", run, *words, "--root", tmp_path)
    assert result.exit_code == 0
    assert len({row.foreign for row in rows_in(run) if row.task == "fgsm"}) == strengths
    assert ("noise" in {row.task for row in rows_in(run)}) == (words != ["--tasks", "fgsm"])
    assert ("attacks by FGSM" in result.stdout) == bool(strengths)
    assert ("the 3 weakest of 13" in result.stdout) == (words == ["--tasks", "all"])
    assert result.stdout.count("ε ") == min(strengths, 3 if words == ["--tasks", "all"] else 13)


def test_json_prints_the_rows_that_were_written(run: Path) -> None:
    result = dsui("evaluate", run, *MISSED, "--json")
    assert [ResultRow.from_json(line) for line in result.stdout.splitlines()] == rows_in(run)


def test_a_second_evaluation_adds_its_rows_and_uses_the_outputs(run: Path) -> None:
    dsui("evaluate", run, *MISSED, "--quiet")
    first = rows_in(run)
    times = {path: path.stat().st_mtime_ns for path in (run / "outputs").iterdir()}
    dsui("evaluate", run, *MISSED, "--quiet")
    assert rows_in(run) == [*first, *first]
    assert {path: path.stat().st_mtime_ns for path in (run / "outputs").iterdir()} == times


def test_without_a_cache_the_run_has_no_outputs_but_its_rows(run: Path) -> None:
    before = {path.name for path in run.iterdir()}
    assert dsui("evaluate", run, *MISSED, "--no-cache").exit_code == 0
    assert {path.name for path in run.iterdir()} == before | {"results.jsonl"}


def test_quiet_prints_nothing_and_still_writes_the_file(run: Path, tmp_path: Path) -> None:
    result = dsui("evaluate", run, *MISSED, "--quiet", "--out", tmp_path / "table.md")
    assert result.output == ""
    assert "| Max.P." in (tmp_path / "table.md").read_text()


def test_json_rows_and_a_table_in_a_file_go_together(run: Path, tmp_path: Path) -> None:
    result = dsui("evaluate", run, *MISSED, "--json", "--out", tmp_path / "table.csv", "--format", "csv")
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == 8
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 8


def test_every_format_is_what_it_says(run: Path) -> None:
    shown = {form: dsui("evaluate", run, *MISSED, "--format", form).stdout for form in FORMATS}
    lines = list(csv.DictReader(io.StringIO(shown["csv"])))
    table = json.loads(shown["json"])
    auroc = {row.score: row.metrics["auroc"] for row in rows_in(run)[1:8]}
    auroc = {"uncertainty": auroc["uncertainty"], **auroc}  # the recommended score comes first
    assert [float(line["misclassification AUROC"]) for line in lines] == list(auroc.values())
    assert [line["cells"][0]["mean"] for line in table["lines"]] == list(auroc.values())
    assert shown["latex"].count(r"\\") == 9  # two lines of header and seven scores
    assert shown["latex"].startswith("\\begin{table}")
    body = [line for line in shown["markdown"].splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in body} == {3}
    assert f"{100 * auroc['uncertainty']:.2f}" in shown["terminal"]


FORMATS = ("terminal", "markdown", "latex", "csv", "json")


def test_only_the_scores_asked_for_are_shown_and_all_are_written(run: Path) -> None:
    shown = dsui("evaluate", run, *MISSED, "--scores", "entropy", "--format", "csv").stdout
    assert [line.split(",")[0] for line in shown.splitlines()] == ["score", "Ent."]
    assert len(rows_in(run)) == 8


def test_the_screen_shows_the_recommended_score_and_says_how_to_see_the_others(run: Path) -> None:
    result = dsui("evaluate", run, *MISSED)
    assert "by uncertainty *" in result.stdout
    assert "* the recommended score." in result.stdout
    for other in ("Max.P.", "sirc_energy", "max_logit"):
        assert other not in result.stdout
    assert "6 more scores are in" in result.stderr
    assert "--scores all shows them" in result.stderr
    everything = dsui("evaluate", run, *MISSED, "--scores", "all")
    errors = everything.stdout.partition("Finding errors")[2].splitlines()
    scores = [line.split("  ")[0] for line in errors[3:] if "  " in line]
    assert scores[0] == "uncertainty *", "the recommended score comes first"
    for other in ("Max.P.", "sirc_energy", "max_logit"):
        assert other in scores
    assert "--scores all" not in everything.stderr


def test_a_run_has_a_table_for_each_question_that_fits_sixty_columns(run: Path, tmp_path: Path) -> None:
    shown = [dsui("evaluate", run, "--root", tmp_path, "--scores", scores).stdout for scores in ("", "all")]
    with pytest.MonkeyPatch.context() as narrow:
        narrow.setenv("COLUMNS", "60")
        shown += [dsui("evaluate", run, "--root", tmp_path, "--scores", scores).stdout for scores in ("", "all")]
    for text in shown:
        titles = [line for line in text.splitlines() if line.startswith(("Accuracy and", "Finding"))]
        assert [" ".join(title.split()[:2]).strip(",:") for title in titles] == [
            *("Accuracy and", "Finding errors", "Finding foreign", "Finding noise")
        ]
    for text in shown[2:]:  # a command to copy is never broken
        assert max(len(line) for line in text.splitlines() if not line.startswith("Next: ")) <= 60


def test_a_methods_own_score_is_shown_when_asked_for(tmp_path: Path) -> None:
    own = digit_runs.own_copy(digit_runs.run("logitnorm"), tmp_path / "logitnorm")
    assert "normalized" in dsui("evaluate", own, *MISSED, "--scores", "normalized,uncertainty").stdout


def test_detectors_are_scores_too(run: Path) -> None:
    dsui("evaluate", run, *MISSED, "--detectors", "knn,max-logit", "--quiet")
    assert {"knn", "max_logit"} < {row.score for row in rows_in(run)}


def test_another_method_reads_the_weights(tmp_path: Path) -> None:
    own = digit_runs.own_copy(digit_runs.run("dsui"), tmp_path / "dsui")
    dsui("evaluate", own, *MISSED, "--as", "dsui-density", "--quiet")
    assert {row.method for row in rows_in(own)} == {"dsui-density"}
    assert "density_max_probability" not in {row.score for row in rows_in(own)}  # it is Max.P. here


@pytest.mark.parametrize("absent", ["folder:nowhere", "svhn"])
def test_foreign_images_that_are_not_there_are_told_before_the_model_looks_at_any(
    run: Path, tmp_path: Path, absent: str
) -> None:
    assert (
        " is missing below" in (told := fails(run, "--foreign", absent, "--root", tmp_path)) or "is not below" in told
    )
    assert not (run / "outputs").exists()


def test_several_runs_are_evaluated_one_after_another(run: Path, shelf: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(shelf / "open", tmp_path / "open"))
    result = dsui("evaluate", run, other, *MISSED)
    assert "\nopen: msp on digits, small, recipe demo, epochs=2, calibration=0.1, seed 0\n" in result.stdout
    assert "\nmsp: msp on digits, small, recipe demo, epochs=2, seed 0\n" in result.stdout
    assert result.stdout.startswith("msp: Not enough is known to use this model: no foreign images were shown to it.")
    assert "\nopen: Not enough is known" in result.stdout
    assert rows_in(run)[0].run == "msp"
    assert rows_in(other)[0].run == "open"


def fails(*arguments: str | Path) -> str:
    """The sentence of a mistake; `main` prints it and exits with 1."""
    with pytest.raises((DsuiError, ValueError)) as mistake:
        dsui("evaluate", *arguments)
    return str(mistake.value)


def test_a_sentence_for_every_mistake(run: Path, tmp_path: Path) -> None:
    assert "no task 'odd'; did you mean ood? There are misc" in fails(run, "--tasks", "odd")
    assert "no detector 'maholanobis'; did you mean mahalanobis?" in fails(run, "--detectors", "maholanobis")
    assert "no data set 'svnh'; did you mean svhn?" in fails(run, "--foreign", "svnh")
    assert "digits is the run's own data set" in fails(run, "--foreign", "digits")
    assert "no score 'entrpy'; did you mean entropy?" in fails(run, *MISSED, "--scores", "entrpy")
    assert "no method 'msp2'; did you mean msp?" in fails(run, "--as", "msp2")
    assert "dsui does not predict with the weights of msp" in fails(run, "--as", "dsui", *MISSED)
    assert "recipe 'demo' has none" in fails(run, "--as", "mc-dropout", *MISSED)
    assert "no part 'training'; there are test, held-out." in fails(run, "--on", "training")
    assert "held no images out" in fails(run, "--on", "held-out", *MISSED)
    assert "train with --known" in fails(run, "--tasks", "open-set")
    assert "no device 'tpu'; did you mean" in fails(run, "--device", "tpu")
    if not torch.cuda.is_available():
        assert "there is no GPU that PyTorch can use; choose the device cpu." in fails(run, "--device", "cuda")
    for strength in ("strong", "-0.1", "nan", "inf", ""):
        assert "is not the strength of an attack" in fails(run, "--epsilons", f"0.1,{strength}")
    assert "svhn" in fails(run, "--tasks", "ood", "--foreign", "svhn", "--root", tmp_path)
    assert "--out holds the table of one run and 2 are named" in fails(run, run, "--out", tmp_path / "a.md")
    assert "(No such file or directory); choose another --out." in fails(
        run, *MISSED, "--out", tmp_path / "no" / "a.md"
    )


def test_a_run_that_cannot_be_read_or_written_is_told_before_any_work(run: Path, tmp_path: Path) -> None:
    assert f"{tmp_path / 'none'} is not the folder of a run" in fails(tmp_path / "none")
    assert f"{run / 'config.yaml'} is not the folder of a run" in fails(run, run / "config.yaml")
    (tmp_path / "empty").mkdir()
    assert "model.safetensors is missing; train the run to its end" in fails(run, tmp_path / "empty")
    assert not (run / "results.jsonl").exists(), "all runs are looked at before the first is evaluated"
    (run / "results.jsonl").mkdir()
    elsewhere = "results.jsonl could not be written (Is a directory); keep the rows elsewhere with --out FILE.jsonl."
    assert elsewhere in fails(run, *MISSED)
    assert not (run / "outputs").exists()
    (run / "results.jsonl").rmdir()
    (run / "outputs").write_text("")
    assert "outputs cannot be written (File exists); remove the cause, or choose --no-cache." in fails(run, *MISSED)


def digits_in_files(path: Path) -> Path:
    """Three classes of digits as PNG files."""
    from PIL import Image

    for split in ("train", "test"):
        images = load("digits", split)
        for label in range(3):
            folder = path / split / f"digit {label}"
            folder.mkdir(parents=True)
            for place in (images.labels == label).nonzero().flatten()[:40]:
                Image.fromarray(images.read(place.view(1))[0, 0].numpy()).save(folder / f"{place}.png")
    return path


def test_own_images_are_evaluated_until_their_classes_change(tmp_path: Path) -> None:
    data, run = digits_in_files(tmp_path / "mine"), tmp_path / "run"
    chosen = ["--data", f"folder:{data}", "--size", "8", "--channels", "1", "--method", "msp", "--set", "batch=40"]
    assert dsui(*TRAIN, *chosen, "--out", run).exit_code == 0
    assert dsui("evaluate", run, *MISSED, "--quiet").exit_code == 0
    assert sum(filter(None, (rows_in(run)[-1].n_positive, rows_in(run)[-1].n_negative))) == 120
    (data / "test" / "digit 0" / "torn.png").write_bytes(b"torn")
    assert "torn.png cannot be used" in fails(run, *MISSED)
    assert f"1 unreadable file of folder:{data}, test left out." in dsui("evaluate", run, *MISSED, "--skip-bad").stderr
    assert "torn.png cannot be used" in fails(run, *MISSED), "what was kept without it does not hide it"
    (data / "test" / "digit 0" / "torn.png").unlink()
    for split in ("train", "test"):
        shutil.rmtree(data / split / "digit 1")
    sentence = fails(run, *MISSED)
    assert "was trained on 3 classes and" in sentence
    assert "now has 2; restore the data or train again." in sentence


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--json"], 0), (["--tasks", "open-set"], 1), (["--tasks", "odd"], 2), (["--no-such-option"], 2)],
)
def test_a_command_exits_with_0_1_or_2_and_keeps_errors_out_of_its_output(
    run: Path,
    words: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["dsui", "evaluate", str(run), *MISSED, *words])
    with pytest.raises(SystemExit) as leaving:
        main()
    printed = capsys.readouterr()
    assert leaving.value.code == status
    assert bool(printed.err) == (status > 0)
    assert len([ResultRow.from_json(line) for line in printed.out.splitlines()]) == (0 if status else 8)
    if status:
        assert printed.err.startswith("dsui: ")
        assert printed.err.count("\n") == 1


def test_help_says_what_it_does_with_an_example() -> None:
    assert (evaluate.__doc__ or "").startswith("Measure how well runs detect errors")
    assert "Example: dsui evaluate" in dsui("evaluate", "--help").stdout


def test_a_mistyped_score_is_told_before_any_work(run: Path) -> None:
    with pytest.raises(DsuiError, match="no score 'entropyy'; did you mean entropy"):
        dsui("evaluate", run, *MISSED, "--scores", "entropyy")
    assert not (run / "outputs").exists()
    assert not (run / "results.jsonl").exists()


def test_a_detector_that_was_asked_for_is_shown_though_it_is_a_variant(run: Path) -> None:
    assert "max_logit" not in dsui("evaluate", run, *MISSED).stdout
    assert "max_logit" in dsui("evaluate", run, *MISSED, "--detectors", "max-logit").stdout


def test_rows_of_a_run_that_may_only_be_read_are_kept_elsewhere(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.jsonl"

    def outside(path: Path) -> Path:  # the mode of a folder does not bind a superuser
        if path.is_relative_to(run):
            raise OSError(30, "Read-only file system")
        return path

    append, wait = files.append_lines, files.wait_for_lock
    monkeypatch.setattr("dsui.evaluation.results.append_lines", lambda path, lines: append(outside(path), lines))
    monkeypatch.setattr("dsui.evaluation.cache.wait_for_lock", lambda path: wait(outside(path)))
    before = sorted(run.rglob("*"))
    assert "(Read-only file system); keep the rows elsewhere with --out FILE.jsonl." in fails(run, *MISSED)
    for times in (1, 2):
        result = dsui("evaluate", run, *MISSED, "--out", rows)
        assert result.exit_code == 0, result.output
        assert "Finding errors" in result.stdout, "the tables are printed"
        found, problems = read([rows])
        assert (len({row.score for row in found}) > 5, problems) == (True, [])
        assert len(found) % times == 0
        assert "so the outputs are not kept." in " ".join(result.stderr.split())
    assert len(found) == 2 * len({(row.task, row.score) for row in found}), "rows are added, as in the run"
    assert [path for path in sorted(run.rglob("*")) if path not in before and path.name != "outputs"] == []
