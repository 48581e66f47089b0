"""`dsui report` on runs that the command line trained itself, for as long as it takes to have something to show."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dsui.cli import app, main
from dsui.errors import DsuiError
from dsui.report import assembly
from dsui.report.figures import embedding
from dsui.report.section import Section

runner = CliRunner()
TRAIN = ["train", "--data", "digits", "--backbone", "small", "--recipe", "demo", "--set", "epochs=3", "--quiet"]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("msp", "dsui"):
        arguments = [*TRAIN, "--method", method, "--device", "cpu", "--out", str(folder / method)]
        assert runner.invoke(app, arguments, catch_exceptions=False).exit_code == 0
    return folder


@pytest.fixture
def run(shelf: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shelf / "msp", tmp_path / "msp"))


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "POINTS", 40)


@pytest.fixture
def no_figures_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at nothing but the rest."""
    monkeypatch.setattr(assembly, "run_section", lambda each, _step: Section(each.key, f"Run {each.name}"))


def dsui(*arguments: str | Path) -> Result:
    return runner.invoke(app, [*map(str, arguments)], catch_exceptions=False)


def test_a_page_and_its_figures_are_written_and_outputs_are_used_again(run: Path, tmp_path: Path) -> None:
    out, figures = tmp_path / "page.html", tmp_path / "figures"
    result = dsui("report", run, run, "--out", out, "--figures", figures, "--title", "My runs", "--root", tmp_path)
    assert result.exit_code == 0
    text = out.read_text()
    assert "<h1>My runs</h1>" in text
    assert "One run:" in text, "a run named twice is shown once"
    assert re.fullmatch(rf"Wrote {out} \(\d\.\d MB\), and its figures to {figures}\.\n", result.stdout)
    shown = set(re.findall(r'<figure id="([^"]+)"', text))
    assert {path.stem for path in figures.glob("*.svg")} == {path.stem for path in figures.glob("*.png")} == shown
    times = {path: path.stat().st_mtime_ns for path in (run / "outputs").iterdir()}
    assert {path.name.split("-")[0] for path in times} - {".lock"} == {"train", "test", "photos", "noise"}
    assert dsui("report", run, "--out", tmp_path / "again.html", "--title", "My runs", "--quiet").output == ""
    assert (tmp_path / "again.html").read_text() == text, "the same runs give the same page, byte for byte"
    assert {path: path.stat().st_mtime_ns for path in (run / "outputs").iterdir()} == times


@pytest.mark.usefixtures("no_figures_of_runs")
def test_several_evaluated_runs_are_compared(shelf: Path, tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(shelf / name, tmp_path / name)) for name in ("msp", "dsui")]
    for folder in runs:
        dsui("evaluate", folder, "--epsilons", "0.1,0.3", "--root", tmp_path, "--quiet")
    assert dsui("report", *runs, "--out", tmp_path / "two.html").exit_code == 0
    text = (tmp_path / "two.html").read_text()
    assert "<h1>msp, dsui on digits</h1>" in text
    for name in ("pairs-aupr-entropy", "fgsm-auroc-entropy"):
        assert f'<figure id="{name}"' in text
    assert "so computed for this page" not in text
    assert "No attack has been evaluated" not in text


@pytest.mark.usefixtures("no_figures_of_runs")
def test_without_a_cache_nothing_is_left_in_the_run(run: Path, tmp_path: Path) -> None:
    before = {path.name for path in run.iterdir()}
    assert dsui("report", run, "--no-cache", "--out", tmp_path / "page.html").exit_code == 0
    assert {path.name for path in run.iterdir()} == before


def fails(*arguments: str | Path) -> str:
    with pytest.raises((DsuiError, ValueError)) as mistake:
        dsui("report", *arguments)
    return str(mistake.value)


def test_mistakes_are_one_sentence_before_any_work(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{tmp_path / 'none'} is not the folder of a run" in fails(run, tmp_path / "none")
    assert "no data set 'svnh'; did you mean svhn?" in fails(run, "--foreign", "photos,svnh")
    assert f"svhn is not below {tmp_path}; run `dsui data get svhn`" in fails(
        run, "--foreign", "svhn", "--root", tmp_path
    )
    assert "no device 'tpu'; did you mean cpu?" in fails(run, "--device", "tpu")
    assert "its folder does not exist; choose another --out." in fails(run, "--out", tmp_path / "no" / "page.html")
    assert "it is a folder; choose another --out." in fails(run, "--out", tmp_path)
    assert f"name it {tmp_path / 'page.html'}." in fails(run, "--out", tmp_path / "page.pdf")
    for package in ("jinja2", "matplotlib", "openTSNE"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            assert fails(run) == f"figures and reports need {package}; run pip install {package}."
    assert not (run / "outputs").exists()
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--foreign", "svhn", "--root", "nowhere"], 1), (["--foreign", "svnh"], 2), (["--no-such-option"], 2)],
)
def test_the_exit_status_tells_a_mistake_from_wrong_usage(
    run: Path, words: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dsui", "report", str(run), *words])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err


def test_help_ends_with_an_example() -> None:
    assert "Example: dsui report" in dsui("report", "--help").stdout
