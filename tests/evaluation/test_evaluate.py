"""From the folder of a run to results rows, in one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsui.errors import DsuiError
from dsui.evaluation import TASKS
from dsui.evaluation.evaluate import evaluate, open_evaluation
from dsui.runs.model import run_facts
from tests.support.digit_runs import CPU, evaluation, run


def test_rows_are_those_of_the_tasks_in_order() -> None:
    found = evaluate(run(), ["noise", "misclassification", "ood"], ["photos"], device="cpu", detectors=["knn"])
    tasks = evaluation(run(), detectors=["knn"])
    assert found == [*tasks.rows("noise"), *tasks.rows("misclassification"), *tasks.rows("ood", ["photos"])]


def test_without_names_all_tasks_that_apply_and_all_foreign_sets_that_are_present_count(tmp_path: Path) -> None:
    rows = evaluate(run(), epsilons=[0.1], device=CPU, root=tmp_path)
    assert {row.task for row in rows} == {"accuracy", *TASKS} - {"open-set"}
    assert {row.foreign for row in rows if row.task == "ood"} == {"photos"}
    assert "ood" not in {row.task for row in evaluate(run(), foreign=[], epsilons=[], device=CPU, root=tmp_path)}
    known = evaluate(run(known="0,1,2,3,4,5"), foreign=[], epsilons=[], device=CPU, root=tmp_path)
    assert "open-set" in {row.task for row in known}


def test_a_missing_foreign_set_is_reported_before_any_work(tmp_path: Path) -> None:
    heard: list[str] = []
    with pytest.raises(DsuiError, match="svhn"):
        evaluate(
            run(),
            foreign=["photos", "svhn"],
            device=CPU,
            root=tmp_path,
            keep_outputs=False,
            progress=lambda name, *_: heard.append(name),
        )
    assert heard == []


def test_outputs_that_are_not_kept_are_deleted_at_the_end() -> None:
    facts = run_facts(run())
    with open_evaluation(facts, "cpu", keep_outputs=False) as opened:
        stored = opened.outputs(opened.sources.own())
        assert stored.count == 797
        assert all(path.exists() and facts.path not in path.parents for path in stored.paths)
    assert not any(path.exists() for path in stored.paths)
