"""`dsui compare` knows a run by its weights, and leaves out rows of weights that are gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner, Result

from dsui.cli import app
from dsui.evaluation.results import append
from dsui.runs.model import run_facts, short_fingerprint
from tests.support import digit_runs
from tests.support.comparison_rows import rows_of


def dsui(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)


def test_a_run_is_known_by_its_weights_and_not_by_its_folder(tmp_path: Path) -> None:
    def run(folder: str, weights: str, auroc: float) -> Path:
        (tmp_path / folder).mkdir(parents=True)
        rows = [replace(row, run=Path(folder).name, weights=weights) for row in rows_of("msp", 0, auroc)]
        append(tmp_path / folder / "results.jsonl", rows)
        return tmp_path / folder

    def shown(*runs: Path) -> str:
        return dsui(*runs, "--task", "ood", "--reference", "msp", "--metric", "auroc").stdout

    first, namesake, renamed = run("a/msp-0", "1", 0.8), run("b/msp-0", "2", 0.9), run("c/other", "1", 0.8)
    assert "85.00 ± 7.07" in shown(first, namesake)
    assert "One run each" in shown(first, renamed)


def test_rows_of_weights_that_are_gone_and_of_held_out_images_are_left_out_and_told(tmp_path: Path) -> None:
    path = digit_runs.own_copy(digit_runs.run(), tmp_path / "run")
    now = short_fingerprint(run_facts(path).fingerprint())
    held_out = [replace(row, protocol="ood, all in-domain images of held-out") for row in rows_of("msp", 0, 0.5)]
    stale, fresh = ([replace(row, run="run", weights=each) for row in rows_of("msp", 0, 0.7)] for each in ("gone", now))
    append(path / "results.jsonl", [*stale, *fresh, *held_out])
    result = dsui(path, "--task", "ood", "--reference", "msp")
    assert "Note: 3 rows are left out: their weights are no longer there." in result.stderr
    assert "Note: rows of held-out images are left out, since there are rows of test images." in result.stderr
    assert "70.00" in result.stdout
    assert "50.00" not in result.stdout


def test_rows_of_before_weights_were_noted_give_way_to_later_ones_of_the_run(tmp_path: Path) -> None:
    path = digit_runs.own_copy(digit_runs.run(), tmp_path / "run")
    now = short_fingerprint(run_facts(path).fingerprint())
    old, new = (
        [replace(row, run="run", weights=weights) for row in rows_of("msp", 0, auroc)]
        for weights, auroc in ((None, 0.6), (now, 0.8))
    )
    append(path / "results.jsonl", [*old, *new])
    shown = dsui(path, "--task", "ood", "--reference", "msp", "--metric", "auroc").stdout
    assert "80.00" in shown
    assert "One run each" in shown


def test_rows_are_compared_also_where_the_weights_cannot_be_read_any_more(tmp_path: Path) -> None:
    path = digit_runs.own_copy(digit_runs.run(), tmp_path / "run")
    (path / "model.safetensors").write_bytes(b"torn")
    append(path / "results.jsonl", [replace(row, run="run") for row in rows_of("msp", 0, 0.8)])
    assert "80.00" in dsui(path, "--task", "ood", "--reference", "msp").stdout


def test_runs_of_one_name_both_count_where_their_weights_are_there(tmp_path: Path) -> None:
    for folder, seed, auroc in (("a", 0, 0.8), ("b", 1, 0.9)):
        path = digit_runs.own_copy(digit_runs.run(seed=seed), tmp_path / folder / "msp")
        weights = short_fingerprint(run_facts(path).fingerprint())
        append(
            path / "results.jsonl", [replace(row, run="msp", weights=weights) for row in rows_of("msp", seed, auroc)]
        )
    result = dsui(tmp_path / "a" / "msp", tmp_path / "b" / "msp", "--task", "ood", "--reference", "msp")
    assert "no longer there" not in result.stderr
    assert "85.00 ± 7.07" in result.stdout


def test_rows_of_a_file_are_not_judged_by_folders_of_the_same_name(tmp_path: Path) -> None:
    run = digit_runs.own_copy(digit_runs.run(), tmp_path / "dsui-0")
    weights = short_fingerprint(run_facts(run).fingerprint())
    append(run / "results.jsonl", [replace(row, weights=weights) for row in rows_of("dsui", 0, 0.9)])
    others = [replace(row, weights="another") for row in rows_of("dsui", 0, 0.7)]
    append(tmp_path / "colleague.jsonl", others)
    result = dsui(run, "--results", tmp_path / "colleague.jsonl", "--task", "ood")
    assert "no longer there" not in result.output
    assert "80.00" in result.stdout, "the mean of both"
    append(run / "results.jsonl", [replace(row, run="as-it-was-called") for row in others])
    alone = dsui(run, "--task", "ood")
    assert "3 rows are left out: their weights are no longer there" in alone.stderr
    assert "90.00" in alone.stdout
