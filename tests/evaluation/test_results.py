from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pytest

import dsui
from dsui.errors import DsuiError
from dsui.evaluation.results import ResultRow, append, commit, read, versions
from tests.support import result_row

CONTRACT = """
run, method, objective, data, backbone, recipe, seed, task, foreign, score, metrics,
n_positive, n_negative, protocol, split, versions, device, seconds, commit, weights
"""
NAMES = [name.strip() for name in CONTRACT.split(",")]
ROW = replace(
    result_row.ROW,
    metrics={"auroc": 0.1 + 0.2, "aupr": 1.0},
    n_positive=26032,
    n_negative=10000,
    versions={"python": "3.11"},
    seconds=1.5,
)


def test_row_has_the_fields_of_the_contract_and_survives_json_to_the_last_bit() -> None:
    assert [field.name for field in fields(ResultRow)] == NAMES
    assert list(json.loads(ROW.to_json())) == NAMES
    assert ResultRow.from_json(ROW.to_json()) == ROW
    attack = replace(ROW, foreign=0.1, n_positive=None)
    assert ResultRow.from_json(attack.to_json()) == attack


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_metric_that_is_no_number_is_null_on_disk_and_nan_in_memory(value: float) -> None:
    text = replace(ROW, metrics={"auroc": value, "aupr": 0.5}).to_json()
    assert json.loads(text)["metrics"] == {"auroc": None, "aupr": 0.5}
    back = ResultRow.from_json(text).metrics
    assert math.isnan(back["auroc"])
    assert back["aupr"] == 0.5


def test_broken_lines_are_named_and_the_rest_is_used(tmp_path: Path) -> None:
    good = ROW.to_json()
    whole = json.loads(good)
    lines = [
        good,
        good[:50],
        "",
        json.dumps([1]),
        json.dumps({key: value for key, value in whole.items() if key not in {"seed", "task"}}),
        json.dumps(whole | {"added_later": 1}),
        json.dumps(whole | {"metrics": {"auroc": "high"}}),
        json.dumps(whole | {"foreign": ["svhn"]}),
        json.dumps(whole | {"seed": None}),
        "[" * 100_000,
    ]
    path = tmp_path / "a.jsonl"
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n" + good.encode())
    rows, problems = read([tmp_path / "absent.jsonl", path])
    assert rows == [ROW, ROW, ROW]
    assert problems[0] == f"{tmp_path / 'absent.jsonl'} cannot be read (No such file or directory)."
    expected = {
        2: "it is not whole JSON",
        4: "it is [1]; it must be a mapping",
        5: "seed is absent; it must be a whole number from",
        7: "metrics.auroc is 'high'; it must be a number or null",
        8: "foreign is ['svhn']; it must be text of at most 4,096 characters or a number or null",
        9: "seed is None; it must be a whole number",
        10: "its brackets nest too deep",
        11: "it is not whole JSON",
    }
    for problem, (number, why) in zip(problems[1:], expected.items(), strict=True):
        assert problem.startswith(f"{path} line {number} is not a results row: {why}")


def test_rows_of_the_first_full_runs_are_readable() -> None:
    rows, problems = read([Path(__file__).parents[2] / "results" / "cifar10-resnet18-paper.jsonl"])
    assert problems == []
    assert {(row.method, row.task) for row in rows} >= {("dsui", "accuracy"), ("msp", "misclassification")}


def test_appended_rows_are_read_in_order_and_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    rows = [replace(ROW, seed=seed) for seed in range(4)]
    append(path, rows[:2])
    append(path, [])
    with path.open("a") as stream:
        stream.write(ROW.to_json()[:30])  # what a killed process leaves
    append(path, rows[2:])
    found, problems = read([path])
    assert found == rows
    assert problems == [f"{path} line 3 is not a results row: it is not whole JSON."]


def test_full_disk_adds_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append(path, [ROW])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))  # a part of the next row still fits
    try:
        with pytest.raises(DsuiError, match=r"could not be written .*; nothing was added"):
            append(path, [ROW])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


def test_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DsuiError, match="No such file or directory"):
        append(tmp_path / "absent" / "results.jsonl", [ROW])


def test_versions_name_what_figures_depend_on() -> None:
    assert versions().keys() == {"python", "torch", "dsui", "numpy"}
    assert versions()["dsui"] == dsui.__version__


def git(folder: Path, *words: str) -> str:
    program = shutil.which("git")
    if program is None:
        pytest.skip("needs git")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        [program, "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose src/dsui is the installed package."""
    package = tmp_path / "checkout" / "src" / "dsui"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(dsui, "__file__", str(package / "__init__.py"))
    git(tmp_path / "checkout", "init")
    git(tmp_path / "checkout", "add", ".")
    git(tmp_path / "checkout", "commit", "-m", "first")
    return tmp_path / "checkout"


def test_commit_is_that_of_the_source_and_says_when_the_source_differs(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert commit() == head
    (checkout / "notes.txt").write_text("not the source")
    assert commit() == head
    (checkout / "src" / "dsui" / "new.py").write_text("")
    assert commit() == f"{head}-dirty"


def test_commit_is_never_that_of_another_repository(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit()
    git(tmp_path, "init", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert commit() == head
    for foreign in ("vendor/src/dsui", "lib/dsui", "env/lib/site-packages/dsui"):  # inside someone else's checkout
        monkeypatch.setattr(dsui, "__file__", str(checkout / foreign / "__init__.py"))
        (checkout / foreign).mkdir(parents=True)
        assert commit() is None


def test_commit_without_git_is_none(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / ".git" / "HEAD").write_text("damaged")
    assert commit() is None
    monkeypatch.setenv("PATH", "")
    assert commit() is None


@pytest.mark.parametrize("field", ["protocol", "split", "backbone", "objective", "n_positive", "seconds", "commit"])
def test_a_field_of_the_wrong_kind_is_no_row(field: str) -> None:
    wrong = "many" if field in {"n_positive", "seconds"} else 3
    with pytest.raises(ValueError, match=f"^{field} is "):
        ResultRow.from_json(json.dumps(json.loads(ROW.to_json()) | {field: wrong}))


def test_a_figure_beyond_all_floats_is_no_figure() -> None:
    with pytest.raises(ValueError, match=r"metrics\.huge is an integer of 1,329 bits; it must be a number or null"):
        ResultRow.from_json(ROW.to_json().replace('"metrics": {', f'"metrics": {{"huge": {10**400}, '))


def test_a_file_of_nothing_but_other_lines_is_told_in_a_hundred_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x\n" * 5000 + ROW.to_json().encode())
    rows, problems = read([tmp_path / "a.jsonl"])
    assert rows == [ROW]
    assert len(problems) == 101
    assert problems[-1] == f"{tmp_path / 'a.jsonl'} has 4,900 further lines that are no results rows."


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    assert read([tmp_path / "a.jsonl"]) == (
        [],
        [f"{tmp_path / 'a.jsonl'} cannot be read (it is a pipe and not a file)."],
    )
