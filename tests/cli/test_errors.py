"""Errors of a user: one sentence on stderr with the nearest name, and an exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dsui.cli import main
from dsui.errors import DsuiError
from tests.support.command_line import dsui, exit_status


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "no command 'trian'; did you mean train? There are demo, "),
        (
            ["data", "lsit"],
            "no command 'lsit'; did you mean list? There are list, get, check, suspects; see `dsui data --help`.",
        ),
        (["xyz"], "no command 'xyz'; there are demo, "),
        (["--vresion"], "no option --vresion; did you mean --version?"),
        (["train", "--xyz"], "no option --xyz; see `dsui train --help`."),
        (["train", "--data", "digits"], "Missing option '--out'; see `dsui train --help`."),
        (["predict", "run"], "Missing argument 'PATH'; see `dsui predict --help`."),
        (["info", "a.onnx", "more"], "(more); see `dsui info --help`."),
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
        ([*TRAIN, "--set", "epochs"], "--set epochs has no value; write --set KEY=VALUE, as in --set epochs=3."),
        ([*TRAIN, "--mode", "eagre"], "no mode 'eagre'; did you mean eager?"),
        ([*TRAIN, "--device", "coda"], "no device 'coda'; did you mean cuda? There are auto, cpu, cuda."),
        ([*TRAIN, "--out", ""], "a path is empty; write . for the current folder."),
        (["predict", "run", ""], "a path is empty; write . for the current folder."),
        (["compare", "run", ""], "a path is empty; write . for the current folder."),
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
    assert exit_status(*words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"dsui: {sentence}")
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "--data", "digits", "--outliers", "digits"), "the network is trained on these images as its own"),
        (
            ("train", "--data", "folder:a/", "--outliers", "folder:./a"),
            "the network is trained on these images as its own",
        ),
        (("train", "--data", "digits", "--outliers", "photos"), "--outliers photos: it has no training images"),
        (("train", "--data", "digits", "--calibration", "1"), "1 is not a share of the images below 1"),
        (("data", "get", "folder:mine"), "folder:mine is already on this machine"),
        (("evaluate", "a", "b", "--format", "csv"), "--format csv holds one run and 2 are named"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    words: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = ("--out", str(tmp_path / "run")) if words[0] == "train" else ()
    assert exit_status(*words, *out) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_too_little_memory_is_a_sentence_and_other_faults_are_not_disguised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(fault: Exception) -> None:
        def command() -> None:
            raise fault

        monkeypatch.setattr("dsui.cli.application.app", command)
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


def test_a_closed_pipe_is_no_error_of_python() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dsui", "info", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_wrong_usage_exits_with_two() -> None:
    assert dsui(*["demo", "--seeds", "one"]).exit_code == 2
    assert dsui(*["demo", "--seeds", "0"]).exit_code == 2
    assert dsui(*["dmeo"]).exit_code == 2


def test_a_mistake_is_one_sentence_and_exit_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise DsuiError("runs/a does not exist; train it first.")

    monkeypatch.setattr("dsui.cli.application.app", fail)
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 1
    assert capsys.readouterr().err == "dsui: runs/a does not exist; train it first.\n"
