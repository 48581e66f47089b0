"""What every command has: help with an example, --json, --quiet, one-sentence errors that name the nearest.

The commands are those the application finds, so that a new one has to have all of it too.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from dsui.cli import app, main
from dsui.deploy.predictor import BATCH
from dsui.runs.checkpoint import SHORTEST_PAUSE

Words = tuple[str, ...]
LONG: set[Words] = {("demo",), ("verify",)}
"""Commands that train for longer than a test here may take; their own tests look at what they print."""


def _found(group: Any, path: Words = ()) -> Iterator[tuple[Words, Any]]:
    for name, command in group.commands.items():
        here = (*path, name)
        yield from _found(command, here) if hasattr(command, "commands") else [(here, command)]


COMMANDS: dict[Words, Any] = dict(_found(typer.main.get_command(app)))
every_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def dsui(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], prog_name="dsui", env={"COLUMNS": "80"})


def options(path: Words) -> set[str]:
    return {name for parameter in COMMANDS[path].params for name in (*parameter.opts, *parameter.secondary_opts)}


@every_command
def test_help_fits_80_columns_and_explains_every_option(path: Words) -> None:
    result = dsui(*path, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert [each.name for each in COMMANDS[path].params if not getattr(each, "help", "")] == []


@every_command
def test_help_has_an_example_on_one_line_that_the_command_accepts(path: Words) -> None:
    lines = [line.strip() for line in dsui(*path, "--help").stdout.splitlines()]
    examples = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert tuple(words[: 1 + len(path)]) == ("dsui", *path)
        COMMANDS[path].make_context(path[-1], words[1 + len(path) :])  # parses, and raises for wrong usage


@every_command
def test_a_program_can_ask_for_json_and_for_silence(path: Words) -> None:
    assert {"--json", "--quiet"} <= options(path)


@every_command
def test_a_mistyped_option_is_answered_with_the_nearest(path: Words) -> None:
    result = dsui(*path, "--quite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "dsui: no option --quite; did you mean --quiet?\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "no command 'trian'; did you mean train? There are demo, "),
        (["data", "lsit"], "no command 'lsit'; did you mean list? There are list, get, check; see `dsui data --help`."),
        (["xyz"], "no command 'xyz'; there are demo, "),
        (["--vresion"], "no option --vresion; did you mean --version?"),
        (["train", "--xyz"], "no option --xyz; see `dsui train --help`."),
        (["train", "--data", "digits"], "Missing option '--out'; see `dsui train --help`."),
        (["predict", "run"], "Missing argument 'PATH'; see `dsui predict --help`."),
        (["info", "more"], "(more); see `dsui info --help`."),
        (["predict", "run", "a.png", "--coverage", "nan"], "Invalid value for '--coverage'"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_status_2(words: list[str], sentence: str) -> None:
    result = dsui(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("dsui: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["data"]])
def test_a_group_without_a_command_shows_its_help(words: list[str]) -> None:
    result = dsui(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(" ".join(["Usage: dsui", *words]))


def shell(*words: object, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of the command as a shell calls it."""
    monkeypatch.setattr(sys, "argv", ["dsui", *map(str, words)])
    with pytest.raises(SystemExit) as leaving:
        main()
    return int(leaving.value.code or 0)


TRAIN = ["train", "--data", "digits", "--out", "run"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["data", "get", "cifr10"], "no data set 'cifr10'; did you mean cifar10? There are "),
        (["data", "check", "folder:"], "folder: needs a path, as in folder:photos."),
        ([*TRAIN, "--data", "dgits"], "no data set 'dgits'; did you mean digits?"),
        ([*TRAIN, "--outliers", ""], "no data set ''; there are "),
        ([*TRAIN, "--method", "dsiu"], "no method 'dsiu'; did you mean dsui? There are dsui, msp, "),
        ([*TRAIN, "--backbone", "resnet"], "no backbone 'resnet'; did you mean resnet18?"),
        ([*TRAIN, "--recipe", "papr"], "no recipe 'papr'; did you mean paper?"),
        ([*TRAIN, "--recipe", "none.yaml"], "cannot read the recipe none.yaml: No such file or directory."),
        ([*TRAIN, "--set", "epohcs=3"], "neither the recipe nor dsui has a setting 'epohcs'; did you mean 'epochs'?"),
        ([*TRAIN, "--set", "name=mine"], "neither the recipe nor dsui has a setting 'name'"),
        ([*TRAIN, "--set", "epochs"], "--set epochs is no assignment; write --set KEY=VALUE, as in --set epochs=3."),
        ([*TRAIN, "--mode", "eagre"], "no mode 'eagre'; did you mean eager?"),
        ([*TRAIN, "--device", "coda"], "no device 'coda'; did you mean cuda? There are auto, cpu, cuda."),
        ([*TRAIN, "--out", ""], "a path is empty; write . for the present folder."),
        (["predict", "run", ""], "a path is empty; write . for the present folder."),
        (["compare", "run", ""], "a path is empty; write . for the present folder."),
        (["evaluate", "run", "--tasks", "odd"], "no task 'odd'; did you mean ood?"),
        (["evaluate", "run", "--detectors", "knnn"], "no detector 'knnn'; did you mean knn?"),
        (["evaluate", "run", "--foreign", "svnh"], "no data set 'svnh'; did you mean svhn?"),
        (["evaluate", "run", "--as", "mps"], "no method 'mps'; did you mean msp?"),
        (["evaluate", "run", "--on", "tset"], "no part 'tset'; did you mean test?"),
        (["compare", "run", "--format", "jsn"], "no format 'jsn'; did you mean json? There are terminal, "),
        (["compare", "run", "--json", "--format", "csv"], "--json and --format both say what to print; leave one out"),
        (["compare"], "name evaluated runs, or a file or folder of results with --results."),
        (["reproduce", "digts"], "no grid 'digts'; did you mean digits? There are ablation, "),
        (["reproduce", "digits", "--engine", "slrm"], "no engine 'slrm'; did you mean slurm?"),
        (["report", "run", "--foreign", "phtos"], "no data set 'phtos'; did you mean photos?"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell(*words, monkeypatch=monkeypatch) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"dsui: {sentence}")
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


class Place:
    """A run trained for two epochs, an image, and a grid whose one cell is quick."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        Image.new("L", (8, 8)).save(folder / "image.png")
        text = "data: digits\nbackbone: small\nrecipe: demo\nset: {epochs: 1}\nseeds: [0]\ntasks: [misclassification]\n"
        table = "method: msp\ntable: {task: misclassification, metrics: auroc, scores: entropy}\n"
        (folder / "grid.yaml").write_text(text + table, encoding="utf-8")
        assert dsui(*self.training("run"), "--quiet").exit_code == 0
        assert dsui("evaluate", self.run, "--tasks", "misclassification", "--quiet").exit_code == 0

    def training(self, out: str) -> list[object]:
        settings = ["--backbone", "small", "--recipe", "demo", "--method", "msp", "--set", "epochs=2"]
        settings += ["--calibration", "0.1"]
        return ["train", "--data", "digits", *settings, "--device", "cpu", "--out", self.folder / out]

    def calls(self, name: str) -> dict[Words, list[object]]:
        """Every command so that it succeeds; `name` is for what it writes."""
        return {
            ("train",): self.training(name),
            ("evaluate",): ["evaluate", self.run, "--tasks", "misclassification"],
            ("compare",): ["compare", self.run, "--reference", "msp"],
            ("reproduce",): ["reproduce", self.folder / "grid.yaml", "--out", self.folder / "study", "--device", "cpu"],
            ("report",): ["report", self.run, "--out", self.folder / f"{name}.html", "--root", self.folder],
            ("predict",): ["predict", self.run, self.folder / "image.png"],
            ("threshold",): ["threshold", self.run, "--risk", "", "--coverage", "0.5"],
            ("data", "list"): ["data", "list"],
            ("data", "get"): ["data", "get", "digits"],
            ("data", "check"): ["data", "check", "digits"],
            ("info",): ["info"],
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsui.report.assembly.run_section", lambda each, _alone, _step: _section(each))
        yield Place(tmp_path_factory.mktemp("surface"))


def _section(each: Any) -> Any:
    """A report without the figures of its run, which take long."""
    from dsui.report.section import Section

    return Section(each.key, each.name)


ASKED: dict[Words, set[str]] = {
    ("train",): {"run", "weights", "seconds", "figures", "epochs", "seed"},
    ("evaluate",): {"run", "task", "score", "metrics"},
    ("compare",): {"columns", "lines", "note"},
    ("reproduce",): {"study", "cells", "table", "files"},
    ("report",): {"page", "bytes", "figures"},
    ("predict",): {"file", "label", "uncertainty", "error"},
    ("threshold",): {"columns", "lines", "note"},
    ("data", "list"): {"name", "present", "licence", "source"},
    ("data", "get"): {"name", "root", "fetched", "check"},
    ("data", "check"): {"name", "splits", "absent", "problems"},
    ("info",): {"versions", "machine", "data"},
}
ROWS: set[Words] = {("evaluate",), ("predict",)}
"""Print rows as they come, one JSON object to a line."""
MADE_TO_PRINT: set[Words] = {("compare",), ("predict",), ("threshold",), ("data", "list"), ("info",)}
"""What they print is what was asked for, also of a quiet command."""


def test_every_command_is_called_here() -> None:
    assert set(ASKED) | LONG == set(COMMANDS)


@pytest.mark.parametrize("path", ASKED, ids=" ".join)
def test_json_is_all_there_is_on_stdout(path: Words, place: Place) -> None:
    loud, quiet = (dsui(*place.calls(name)[path], "--json", *more) for name, more in (("a", []), ("b", ["--quiet"])))
    for result in (loud, quiet):
        assert result.exit_code == 0, result.output
        parts = result.stdout.splitlines() if path in ROWS else [result.stdout]
        content = [json.loads(part) for part in parts]
        first = content[0][0] if isinstance(content[0], list) else content[0]
        assert ASKED[path] <= set(first)
    assert quiet.stderr == ""


@pytest.mark.parametrize("path", ASKED, ids=" ".join)
def test_a_quiet_command_prints_nothing_but_what_was_asked_for(path: Words, place: Place) -> None:
    result = dsui(*place.calls("c")[path], "--quiet")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert bool(result.stdout) == (path in MADE_TO_PRINT)


def test_the_figures_of_a_run_are_those_of_its_log(place: Place) -> None:
    content = json.loads(dsui(*place.training("logged"), "--json").stdout)
    rows = [json.loads(line) for line in (place.folder / "logged" / "log.jsonl").read_text().splitlines()]
    assert content["figures"] == {name: rows[-1][name] for name in ("loss", "cross_entropy", "accuracy")}
    assert content["seconds"] == round(sum(row["seconds"] for row in rows), 3)
    assert Path(content["weights"]).is_file()
    again = dsui(*place.training("logged"), "--resume", "--json", "--quiet")
    assert json.loads(again.stdout) == content, "a finished run tells the same"


def test_a_study_tells_its_cells_and_table_to_a_program(place: Place) -> None:
    words = [*place.calls("")["reproduce",], "--json"]
    listed = json.loads(dsui(*words, "--dry-run", "--out", place.folder / "new").stdout)
    assert listed["cells"] == [
        {"name": "msp, digits, small, seed 0", "state": "to do", "detail": "", "trains": True, "seconds": None}
    ]
    done = json.loads(dsui(*words).stdout)
    assert [cell["state"] for cell in done["cells"]] == ["done"]
    (line,) = done["table"]["lines"]
    assert line["label"] == "msp"
    assert line["cells"][0]["runs"] == 1
    assert 0 < line["cells"][0]["mean"] < 1
    assert all(Path(file).is_file() for file in done["files"])
    script = json.loads(dsui(*words, "--engine", "slurm", "--out", place.folder / "jobs").stdout)
    assert (Path(script["script"]).is_file(), script["tasks"]) == (True, 1)


@pytest.mark.parametrize(
    ("work", "path"),
    [
        ("dsui.evaluation.tasks.Evaluation.rows", ("evaluate",)),
        ("dsui.report.assembly.sections", ("report",)),
        ("dsui.data.check.check", ("data", "check")),
        ("dsui.report.comparison.compare", ("compare",)),
        ("dsui.data.registry.load", ("train",)),
    ],
)
def test_ctrl_c_is_one_word_and_exit_status_130(
    work: str, path: Words, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work, stop)
    assert shell(*place.calls("stopped")[path], monkeypatch=monkeypatch) == 130
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "dsui: stopped.\n")


def test_a_file_that_cannot_be_used_is_one_sentence_and_exit_status_1(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", place.folder / "grid.yaml", "--out", place.folder / "image.png"]
    assert shell(*words, monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.endswith("(Not a directory); mend this and run again.\n")


def test_a_closed_pipe_is_no_error_of_python() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dsui", "info", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_defaults_that_help_tells_are_those_in_use() -> None:
    assert f"{BATCH} by default" in dsui("predict", "--help").stdout
    assert f"{SHORTEST_PAUSE:g} by default" in " ".join(dsui("train", "--help").stdout.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "--data", "digits", "--outliers", "digits"), "its images are not foreign to a network trained on"),
        (("train", "--data", "folder:a/", "--outliers", "folder:./a"), "its images are not foreign to a network"),
        (("train", "--data", "digits", "--outliers", "photos"), "--outliers photos: it has no training images"),
        (("train", "--data", "digits", "--calibration", "1"), "1 is no share of the images below 1"),
        (("data", "get", "folder:mine"), "folder:mine is your own and already here"),
        (("evaluate", "a", "b", "--format", "csv"), "--format csv holds one run and 2 are named"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "run")) if words[0] == "train" else ()
    result = subprocess.run(
        [sys.executable, "-m", "dsui", *words, *out], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (result.returncode, sentence in result.stderr) == (2, True)
    assert not (tmp_path / "run").exists()


def test_a_stopped_training_ends_with_130_and_skipped_files_are_counted(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "mine" / "train" / label).mkdir(parents=True)
        for number in range(10):
            Image.effect_noise((8, 8), 50).save(tmp_path / "mine" / "train" / label / f"{number}.png")
    (tmp_path / "mine" / "train" / "a" / "bad.png").write_bytes(b"no image")
    settings = ("--backbone", "small", "--recipe", "demo", "--size", "8", "--set", "batch=4", "--set", "epochs=5000")
    command = [sys.executable, "-m", "dsui", "train", "--data", "folder:mine/", "--skip-bad", *settings, "--out", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "log.jsonl").exists() or not (tmp_path / "run" / "log.jsonl").read_bytes():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "folder:mine\n" in (tmp_path / "run" / "config.yaml").read_text()  # without the slash
    assert "1 files are left out; `dsui data check folder:mine --skip-bad` names them." in told
    assert "go on with the same command and --resume" in told


def test_too_little_memory_is_a_sentence_and_other_faults_are_not_disguised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(fault: Exception) -> None:
        def command() -> None:
            raise fault

        monkeypatch.setattr("dsui.cli.app", command)
        main()

    for fault in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        with pytest.raises(SystemExit) as left:
            fails(fault)
        assert left.value.code == 1
        assert capsys.readouterr().err == (
            "dsui: there is not enough memory for this; choose smaller images, a smaller batch or fewer components.\n"
        )
    with pytest.raises(RuntimeError, match="something else"):
        fails(RuntimeError("something else"))


def test_a_large_network_on_a_cpu_and_a_lost_log_are_told_of_and_borne(tmp_path: Path) -> None:
    words = ["train", "--data", "digits", "--backbone", "resnet18", "--recipe", "demo", "--set", "epochs=1"]
    words += ["--set", "batch=1000", "--method", "msp", "--device", "cpu", "--out", str(tmp_path / "run")]
    result = dsui(*words)
    assert "resnet18 takes long without a GPU; begin with --backbone small --recipe demo." in result.stderr
    (tmp_path / "run" / "log.jsonl").unlink()
    again = json.loads(dsui(*words, "--resume", "--json").stdout)
    assert (again["figures"], again["seconds"], again["held_out"]) == ({}, 0, None)
