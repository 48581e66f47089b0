"""What every command has: help with an example, --json, --quiet, and one sentence after Ctrl-C.

The commands are taken from the application, so that a new one must have all of it too.
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

from dsui.cli import app
from dsui.deploy.predictor import BATCH
from dsui.runs.checkpoint import SHORTEST_PAUSE
from tests.support.command_line import dsui, exit_status

Words = tuple[str, ...]
LONG: set[Words] = {("demo",), ("verify",), ("bench",), ("serve",)}
"""Commands that train or measure for longer than a test here may take, or end only when told to. Their own tests look
at what they print."""


def _found(group: Any, path: Words = ()) -> Iterator[tuple[Words, Any]]:
    for name, command in group.commands.items():
        here = (*path, name)
        yield from _found(command, here) if hasattr(command, "commands") else [(here, command)]


COMMANDS: dict[Words, Any] = dict(_found(typer.main.get_command(app)))
every_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


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


class Place:
    """A run trained for two epochs, an image, and a grid whose one cell is quick."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        Image.new("L", (8, 8)).save(folder / "image.png")
        self.images = folder / "images"
        self.images.mkdir()
        Image.new("L", (8, 8)).save(self.images / "image.png")
        text = "data: digits\nbackbone: small\nrecipe: demo\nset: {epochs: 1}\nseeds: [0]\ntasks: [misclassification]\n"
        table = "method: msp\ntable: {task: misclassification, metrics: auroc, scores: entropy}\n"
        (folder / "grid.yaml").write_text(text + table, encoding="utf-8")
        assert dsui(*self.training("run"), "--quiet").exit_code == 0
        assert dsui("evaluate", self.run, "--tasks", "misclassification", "--quiet").exit_code == 0

    def training(self, out: str) -> list[object]:
        settings = ["--backbone", "small", "--recipe", "demo", "--method", "msp", "--set", "epochs=2"]
        settings += ["--calibration", "0.1"]
        return ["train", "--data", "digits", *settings, "--device", "cpu", "--out", self.folder / out]

    def predictions(self, name: str) -> Path:
        """The file of a stream of one image, whose score is in the middle."""
        file = self.folder / f"{name}.csv"
        file.write_text("file,label,uncertainty,decision,error\na.png,3,0.0,,\n", encoding="utf-8")
        return file

    def calls(self, name: str) -> dict[Words, list[object]]:
        """Every command so that it succeeds; `name` is for what it writes."""
        return {
            ("train",): self.training(name),
            ("embed",): [
                *["embed", "--backbone", "torch.nn:Flatten", "--size", "8", "--data", f"folder:{self.images}"],
                *["--out", self.folder / f"{name}.safetensors"],
            ],
            ("evaluate",): ["evaluate", self.run, "--tasks", "misclassification"],
            ("compare",): ["compare", self.run, "--reference", "msp"],
            ("reproduce",): ["reproduce", self.folder / "grid.yaml", "--out", self.folder / "study", "--device", "cpu"],
            ("report",): ["report", self.run, "--out", self.folder / f"{name}.html", "--root", self.folder],
            ("predict",): ["predict", self.run, self.folder / "image.png"],
            ("monitor",): ["monitor", self.predictions(name), "--run", self.run],
            ("threshold",): ["threshold", self.run, "--risk", "", "--coverage", "0.5"],
            ("export",): ["export", self.run, self.folder / f"{name}.onnx"],
            ("push",): ["push", self.run, "hf:me/digits", "--out", self.folder / f"card-{name}"],
            ("data", "list"): ["data", "list"],
            ("data", "get"): ["data", "get", "digits"],
            ("data", "check"): ["data", "check", "digits"],
            ("data", "suspects"): ["data", "suspects", self.run, "--out", self.folder / f"suspects-{name}.html"],
            ("info",): ["info"],
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsui.report.assembly.run_section", lambda each, _step: _section(each))
        yield Place(tmp_path_factory.mktemp("surface"))


def _section(each: Any) -> Any:
    """A report without the figures of its run, which take long."""
    from dsui.report.section import Section

    return Section(each.key, each.name)


JSON_KEYS: dict[Words, set[str]] = {
    ("train",): {"run", "weights", "seconds", "figures", "epochs", "best_epoch", "seed"},
    ("embed",): {"file", "images", "features", "classes"},
    ("evaluate",): {"run", "task", "score", "metrics"},
    ("compare",): {"columns", "lines", "note"},
    ("reproduce",): {"study", "cells", "table", "files"},
    ("report",): {"page", "bytes", "figures"},
    ("predict",): {"file", "label", "uncertainty", "error"},
    ("monitor",): {"alarm", "false_alarm", "images", "skipped", "sentence", "monitors"},
    ("threshold",): {"accepting_by", "asked", "thresholds", "calibration", "sets", "saved", "obstacle"},
    ("export",): {"file", "bytes", "outputs", "thresholds", "agreement"},
    ("push",): {"model", "files", "folder", "commit"},
    ("data", "list"): {"name", "present", "licence", "source"},
    ("data", "get"): {"name", "root", "fetched", "check"},
    ("data", "check"): {"name", "splits", "absent", "problems", "remarks", "passed_over"},
    ("data", "suspects"): {"run", "page", "images", "contradicted", "evidence", "suspects"},
    ("info",): {"versions", "machine", "data"},
}
ROWS: set[Words] = {("evaluate",), ("predict",)}
"""Print rows as they come, one JSON object to a line."""
PRINTS_WHEN_QUIET: set[Words] = {
    ("compare",),
    ("predict",),
    ("threshold",),
    ("monitor",),
    ("data", "list"),
    ("info",),
}
"""Commands whose output is their purpose print it also with --quiet."""


def test_every_command_is_called_here() -> None:
    assert set(JSON_KEYS) | LONG == set(COMMANDS)


@pytest.mark.parametrize("path", JSON_KEYS, ids=" ".join)
def test_json_is_all_there_is_on_stdout(path: Words, place: Place) -> None:
    loud, quiet = (dsui(*place.calls(name)[path], "--json", *more) for name, more in (("a", []), ("b", ["--quiet"])))
    for result in (loud, quiet):
        assert result.exit_code == 0, result.output
        parts = result.stdout.splitlines() if path in ROWS else [result.stdout]
        content = [json.loads(part) for part in parts]
        first = content[0][0] if isinstance(content[0], list) else content[0]
        assert JSON_KEYS[path] <= set(first)
    assert quiet.stderr == ""


@pytest.mark.parametrize("path", JSON_KEYS, ids=" ".join)
def test_a_quiet_command_prints_nothing_but_its_output(path: Words, place: Place) -> None:
    result = dsui(*place.calls("c")[path], "--quiet")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert bool(result.stdout) == (path in PRINTS_WHEN_QUIET)


def test_the_figures_of_a_run_are_those_of_its_log(place: Place) -> None:
    content = json.loads(dsui(*place.training("logged"), "--json").stdout)
    rows = [json.loads(line) for line in (place.folder / "logged" / "log.jsonl").read_text().splitlines()]
    figures = {
        name: rows[-1][name] for name in ("loss", "cross_entropy", "accuracy", "held_out_accuracy", "held_out_loss")
    }
    assert content["figures"] == figures
    assert content["seconds"] == round(sum(row["seconds"] for row in rows), 3)
    assert Path(content["weights"]).is_file()
    again = dsui(*place.training("logged"), "--resume", "--json", "--quiet")
    assert json.loads(again.stdout) == content, "a finished run prints the same"


def test_json_of_a_study_holds_its_cells_and_table(place: Place) -> None:
    words = [*place.calls("")["reproduce",], "--json"]
    listed = json.loads(dsui(*words, "--dry-run", "--out", place.folder / "new").stdout)
    assert listed["cells"][0].pop("seconds") > 0
    assert listed["cells"] == [{"name": "msp, digits, small, seed 0", "state": "to do", "detail": "", "trains": True}]
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
        ("dsui.report.comparison_tables.compare_by_question", ("compare",)),
        ("dsui.data.registry.load", ("train",)),
    ],
)
def test_ctrl_c_is_one_word_and_exit_status_130(
    work: str, path: Words, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work, stop)
    assert exit_status(*place.calls("stopped")[path]) == 130
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "dsui: stopped.\n")


def test_a_file_that_cannot_be_used_is_one_sentence_and_exit_status_1(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", place.folder / "grid.yaml", "--out", place.folder / "image.png"]
    assert exit_status(*words) == 1
    assert capsys.readouterr().err.endswith("(Not a directory); correct this and run the command again.\n")


def test_defaults_that_help_names_are_those_in_use() -> None:
    assert f"[default: {BATCH}]" in dsui("predict", "--help").stdout
    assert f"[default: {SHORTEST_PAUSE:g}]" in " ".join(dsui("train", "--help").stdout.split())


def test_a_stopped_training_ends_with_130_and_skipped_files_are_counted(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "mine" / "train" / label).mkdir(parents=True)
        for number in range(10):
            Image.effect_noise((8, 8), 50).save(tmp_path / "mine" / "train" / label / f"{number}.png")
    (tmp_path / "mine" / "train" / "a" / "bad.png").write_bytes(b"no image")
    settings = ("--backbone", "small", "--recipe", "demo", "--size", "8", "--set", "batch=4", "--set", "epochs=5000")
    command = [sys.executable, "-m", "dsui", "train", "--data", "folder:mine/", "--skip-bad", *settings, "--out", "run"]
    log = tmp_path / "run" / "log.jsonl"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not log.exists() or not log.read_bytes():
                assert process.poll() is None, process.communicate()
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, notes = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "folder:mine\n" in (tmp_path / "run" / "config.yaml").read_text()  # without the slash
    assert "1 files are left out; `dsui data check folder:mine --skip-bad` names them." in notes
    assert "go on with the same command and --resume" in notes


def test_a_large_network_on_a_cpu_is_noted_and_a_lost_log_is_no_error(tmp_path: Path) -> None:
    words = ["train", "--data", "digits", "--backbone", "resnet18", "--recipe", "demo", "--set", "epochs=1"]
    words += ["--set", "batch=1000", "--method", "msp", "--device", "cpu", "--out", str(tmp_path / "run")]
    result = dsui(*words)
    assert "resnet18 takes long without a GPU; begin with --backbone small." in result.stderr
    (tmp_path / "run" / "log.jsonl").unlink()
    again = json.loads(dsui(*words, "--resume", "--json").stdout)
    assert (again["figures"], again["seconds"], again["held_out"]) == ({}, 0, None)
