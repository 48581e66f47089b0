"""From the rows of runs of two epochs on digits to the facts of a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsui.evaluation.reliability import calibration_metrics
from dsui.evaluation.results import ResultRow, append
from dsui.evaluation.verdict import judge
from dsui.evaluation.verdict_facts import BetterScore, Facts, facts_of_rows, facts_of_run
from dsui.runs.calibration import stored_calibration, stored_temperature
from dsui.runs.model import RunFacts, run_facts
from dsui.runs.saved_thresholds import THRESHOLDS, save_thresholds
from tests.support.digit_runs import HELD_OUT, evaluation, own_copy, run

TASKS = ("misclassification", "ood", "noise")
DETECTORS = {"knn", "odin"}
COSTS = ("seconds_per_1000",)


def rows_of(path: Path, tasks: tuple[str, ...] = TASKS, **settings: object) -> list[ResultRow]:
    with evaluation(path, **settings) as found:  # type: ignore[arg-type]
        return found.evaluate(tasks, ["photos"])


@pytest.fixture(scope="module")
def dsui() -> tuple[RunFacts, list[ResultRow]]:
    path = run("dsui", held_out=HELD_OUT)
    return run_facts(path), rows_of(path)


def known(facts: RunFacts, rows: list[ResultRow]) -> Facts:
    found = facts_of_rows(facts, rows)
    assert found is not None
    return found


def with_metrics(rows: list[ResultRow], **changed: float) -> Iterator[ResultRow]:
    for row in rows:
        yield replace(row, metrics={**row.metrics, **changed})


def test_the_facts_are_the_figures_of_the_rows(dsui: tuple[RunFacts, list[ResultRow]]) -> None:
    run, rows = dsui
    facts, found = known(run, rows), {(row.task, row.foreign, row.score): row for row in rows}
    accuracy = found["accuracy", None, "prediction"].metrics
    errors, photos = found["misclassification", None, "uncertainty"], found["ood", "photos", "uncertainty"]
    assert (facts.images, facts.classes, facts.held_out, facts.part) == (797, 10, 200, "test")
    assert facts.accuracy == accuracy["accuracy"]
    assert (facts.ece, facts.confidence) == (accuracy["scaled_ece"], accuracy["scaled_confidence"])
    assert facts.temperature == stored_temperature(run)
    assert (facts.errors, facts.errors_auroc) == (errors.n_positive, errors.metrics["auroc"])
    assert facts.risk == errors.metrics["risk_at_95"]
    assert [each.name for each in facts.foreign] == ["photos", "noise"]
    assert facts.foreign[0].passed == photos.metrics["fpr95"]


def test_the_shown_probabilities_are_scaled_and_the_others_stand_beside_them(
    dsui: tuple[RunFacts, list[ResultRow]],
) -> None:
    run, rows = dsui
    with evaluation(run.path) as opened:
        stored = opened.outputs(opened.sources.own())
    logits, labels = stored.part("logits"), stored.part("labels")
    assert logits is not None
    assert labels is not None
    temperature = stored_temperature(run)
    assert temperature is not None
    metrics = next(row.metrics for row in rows if row.score == "prediction")
    plain, scaled = calibration_metrics(logits, labels), calibration_metrics(logits.double() / temperature, labels)
    assert {name: metrics[name] for name in plain} == plain
    assert metrics["scaled_nll"] == scaled["nll"] < plain["nll"]
    assert metrics["scaled_ece"] == scaled["ece"] < plain["ece"]
    assert metrics["majority"] == labels.bincount().max().item() / 797
    density = next(row.metrics for row in rows if row.score == "density")
    assert "scaled_ece" not in density
    assert "confidence" in density


def test_held_out_images_to_which_the_temperature_was_fitted_show_no_scaled_figures(
    dsui: tuple[RunFacts, list[ResultRow]],
) -> None:
    run, _ = dsui
    rows = rows_of(run.path, ("misclassification",), part="held-out")
    assert not any("temperature" in row.metrics for row in rows)
    facts = known(run, rows)
    assert (facts.part, facts.images, facts.temperature) == ("held-out", 200, None)
    assert "200 held-out images" in judge(facts).findings[0].sentence


def test_rows_of_test_images_count_before_held_out_ones_and_later_before_earlier(
    dsui: tuple[RunFacts, list[ResultRow]],
) -> None:
    run, rows = dsui
    held_out = [replace(row, protocol="accuracy, all in-domain images of held-out") for row in rows]
    again = list(with_metrics(rows, fpr95=0.5))
    facts = known(run, [*rows, *again, *held_out])
    assert facts.part == "test"
    assert {each.passed for each in facts.foreign} == {0.5}


def test_rows_of_other_weights_and_methods_do_not_count(dsui: tuple[RunFacts, list[ResultRow]]) -> None:
    run, rows = dsui
    assert facts_of_rows(run, [replace(row, weights="0123456789abcdef") for row in rows]) is None
    assert facts_of_rows(run, [replace(row, method="msp") for row in rows]) is None
    assert facts_of_rows(run, [replace(row, weights=None) for row in rows]) == known(run, rows)
    assert facts_of_rows(run, []) is None


def test_a_folder_without_usable_results_has_no_facts(tmp_path: Path) -> None:
    path = own_copy(run("msp"), tmp_path / "msp")
    assert facts_of_run(run_facts(path)) is None
    (path / "results.jsonl").write_text("no row\n")
    assert facts_of_run(run_facts(path)) is None
    append(path / "results.jsonl", rows_of(path, ("misclassification",)))
    assert facts_of_run(run_facts(path)) is not None


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("msp", {}),
        ("mc-dropout", {"neck": True, "dropout": 0.2, "samples": 3, "epochs": 1}),
        ("ensemble", {"members": 2, "epochs": 1}),
    ],
)
def test_every_method_is_judged_also_one_with_max_probability_alone(method: str, settings: dict[str, object]) -> None:
    path = run(method, held_out=HELD_OUT, **settings)
    verdict = judge(known(run_facts(path), rows_of(path)))
    assert "unknown" not in [str(each.answer) for each in verdict.findings[:3]]
    assert verdict.next_step


def test_a_run_of_some_classes_is_judged_by_the_unknown_ones() -> None:
    path = run(known="0,1,2,3,4,5")
    with evaluation(path) as found:
        rows = found.evaluate(["misclassification", "open-set"])
    facts = known(run_facts(path), rows)
    assert [each.name for each in facts.foreign] == ["unknown classes"]
    assert facts.foreign[0].images == 797 - facts.images


def score_rows(rows: list[ResultRow], passed: dict[str, float]) -> list[ResultRow]:
    """The rows, with these shares of foreign images that pass by a score, and 0.9 by all others."""
    return [
        next(with_metrics([row], fpr95=passed.get(row.score or "", 0.9))) if "fpr95" in row.metrics else row
        for row in rows
    ]


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ({}, None),
        ({"log_density": 0.1}, BetterScore("--score log_density", 0.1)),
        ({"log_density": 0.1, "foreignness": 0.19}, BetterScore("--score foreignness", 0.19)),
        ({"log_density": 0.1, "foreignness": 0.21}, BetterScore("--score log_density", 0.1)),
        ({"sirc_log_density": 0.1}, None),
        ({"odin": 0.1}, None),
        ({"knn": 0.05, "log_density": 0.1}, BetterScore("--detector knn", 0.05)),
    ],
)
def test_the_score_that_turns_foreign_images_away_is_named(
    dsui: tuple[RunFacts, list[ResultRow]], passed: dict[str, float], expected: BetterScore | None
) -> None:
    run, rows = dsui
    fitted = [replace(row, score=name) for row in rows for name in DETECTORS & set(passed) if row.score == "entropy"]
    facts = known(run, score_rows([*rows, *fitted], passed))
    assert facts.better_for_foreign == expected
    assert facts.detectors_tried == bool(DETECTORS & set(passed))


def test_a_score_by_which_hardly_fewer_pass_is_not_named(dsui: tuple[RunFacts, list[ResultRow]]) -> None:
    run, rows = dsui
    better = {"foreignness": 0.18, "log_density": 0.14}
    assert known(run, score_rows(rows, better | {"uncertainty": 0.24})).better_for_foreign is None
    assert known(run, score_rows(rows, better | {"uncertainty": 0.3})).better_for_foreign == BetterScore(
        "--score log_density", 0.14
    )


def test_a_score_counts_only_if_it_is_known_for_every_foreign_set(dsui: tuple[RunFacts, list[ResultRow]]) -> None:
    run, rows = dsui
    rows = score_rows(rows, {"log_density": 0.1})
    partial = [row for row in rows if not (row.score == "log_density" and row.task == "noise")]
    assert known(run, rows).better_for_foreign is not None
    assert known(run, partial).better_for_foreign is None


@pytest.mark.parametrize("asked", [{"coverage": 0.8}, {"risk": 0.1}])
def test_what_passes_is_told_by_the_thresholds_that_the_run_keeps(tmp_path: Path, asked: dict[str, float]) -> None:
    path = own_copy(run("dsui", held_out=HELD_OUT), tmp_path / "run")
    before = rows_of(path)
    facts = run_facts(path)
    chosen = stored_calibration(facts).threshold(**asked)
    save_thresholds(path, chosen, facts.fingerprint())
    unjudged = known(facts, before)
    assert (unjudged.saved, unjudged.threshold) == (False, "coverage 0.95")
    assert unjudged.evaluate_again == f"dsui evaluate {path}"
    rows = rows_of(path)
    by_them = known(facts, [*before, *rows])
    with evaluation(path) as opened:
        stored, own = opened.scores(opened.sources.own())
        _, photos = opened.scores(opened.sources.foreign("photos"))
    labels, logits = stored.part("labels"), stored.part("logits")
    assert labels is not None
    assert logits is not None
    kept = own["uncertainty"] <= chosen.value
    assert by_them.saved
    assert by_them.threshold == f"the saved threshold of {chosen.asked.name}"
    assert by_them.foreign[0].passed == (photos["uncertainty"] <= chosen.value).double().mean().item()
    assert by_them.coverage == pytest.approx(kept.double().mean().item(), rel=1e-12)
    assert by_them.risk == pytest.approx((logits.argmax(1) != labels)[kept].double().mean().item(), rel=1e-12)
    same = {(row.task, row.foreign, row.score): row.metrics for row in before}
    for row in rows:
        old = same[row.task, row.foreign, row.score]
        assert {name: row.metrics[name] for name in old if name not in COSTS} == pytest.approx(
            {name: value for name, value in old.items() if name not in COSTS}, nan_ok=True
        )
    some = [row for row in rows if row.task != "noise"]
    mixed = known(facts, [*before, *some])
    assert not mixed.saved, "noise was not evaluated with them"
    assert mixed.foreign == unjudged.foreign


def test_thresholds_by_a_score_that_was_not_computed_or_that_cannot_be_read_judge_nothing(tmp_path: Path) -> None:
    path = own_copy(run("dsui", held_out=HELD_OUT), tmp_path / "run")
    facts = run_facts(path)
    chosen = stored_calibration(facts).threshold(coverage=0.9)
    by_knn = replace(chosen, limits=(chosen.limits[0]._replace(score="knn"),), detector="knn")
    save_thresholds(path, by_knn, facts.fingerprint())
    unjudged = known(facts, rows_of(path, ("misclassification",)))
    assert unjudged.evaluate_again == f"dsui evaluate {path} --detectors knn"
    (path / THRESHOLDS).write_bytes(b"damaged")
    heard: list[str] = []
    assert known(facts, rows_of(path, ("misclassification",), warn=heard.append)).evaluate_again is None
    assert any("cannot be used" in sentence for sentence in heard)


def test_figures_that_do_not_exist_are_left_out(dsui: tuple[RunFacts, list[ResultRow]]) -> None:
    run, rows = dsui
    undefined = list(with_metrics(rows, fpr95=torch.nan, auroc=torch.nan, risk_at_95=torch.nan))
    facts = known(run, undefined)
    assert facts.foreign == ()
    assert facts.risk is None
    assert facts.better_for_errors is None
    assert judge(facts).next_step
