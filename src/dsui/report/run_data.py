"""What a page shows of one run: its scores of in-domain and foreign images, its results rows and its log.

Outputs come from the run's cache, or are computed and kept there. Rows come from its results.jsonl. Where rows of
misclassification, foreign sets, unknown classes or noise are missing, they are computed from outputs, for the page
alone. Attacks need a backward pass for each strength and are left to `dsui evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dsui.data.dataset import ImageSet
from dsui.data.registry import foreign_split
from dsui.deploy.tradeoff import Tradeoff, measure_tradeoff
from dsui.evaluation.cache import ImageSource
from dsui.evaluation.results import ResultRow, read
from dsui.evaluation.tasks import Evaluation
from dsui.report.columns import SCORES, UNKNOWN
from dsui.report.tsne import FeatureSample, sample_features
from dsui.runs.folder import LOG, RESULTS
from dsui.runs.log import read_log
from dsui.runs.model import RunFacts

PROBLEMS = 5
"""The page names at most this many unusable lines of a results file."""


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """N images of one set, with the model's outputs and scores for them."""

    name: str
    load: Callable[[], ImageSet]
    labels: Tensor
    """[N] of the set's own classes."""
    logits: Tensor
    """[N, C]"""
    log_joint: Tensor | None
    """[N, C]"""
    scores: dict[str, Tensor]
    """[N] each."""
    sample: FeatureSample
    """The features of some of them."""

    @property
    def correct(self) -> Tensor:
        """[N] of in-domain images."""
        return self.logits.argmax(1) == self.labels


@dataclass(frozen=True, eq=False)
class RunResults:
    """The results rows of a run. `name` is its name on the page; no two runs of a page share it."""

    name: str
    facts: RunFacts
    rows: list[ResultRow]
    rows_read: int
    """How many rows are from the run's results file; the others were computed for the page."""
    remarks: list[str]
    """What was computed, and what could not be used."""


@dataclass(frozen=True, eq=False)
class RunData(RunResults):
    """Also its scores of single images, what its thresholds trade, and its log. `key` is the id of its section."""

    key: str
    own: ScoredImages
    foreign: ScoredImages
    tradeoff: Tradeoff
    log: list[dict[str, Any]]


def score_label(name: str) -> str:
    """The name of a score for readers."""
    return SCORES.get(name, name.replace("_", " "))


def collect_run_data(name: str, key: str, evaluation: Evaluation, foreign: Sequence[str], points: int) -> RunData:
    """`foreign`: names of foreign sets. The first is shown image by image; noise where there is none.

    For a run that knows some classes only, the unknown ones are shown. `points`: sample the features of at most this
    many images of a set.
    """
    facts, sources = evaluation.cache.facts, evaluation.sources
    others = [other for other in foreign if foreign_split(other)[0] != facts.config.data]
    if facts.config.known is not None:
        shown = sources.unknown()
    else:
        shown = sources.foreign(others[0]) if others else sources.noise()
    title = shown.name if facts.config.known is None else UNKNOWN
    own = _score_images(evaluation, sources.own(), points)
    read_rows, computed, remarks = _rows(name, evaluation, others, len(own.labels))
    log = read_log(facts.path / LOG)
    theirs = replace(_score_images(evaluation, shown, points), name=title)
    passing = {title: shown} | {other: sources.foreign(other) for other in others} | {"noise": sources.noise()}
    traded = measure_tradeoff(evaluation, passing, remarks.append)
    rows = [replace(row, run=name) for row in (*read_rows, *computed)]
    return RunData(name, facts, rows, len(read_rows), [*remarks, *log.problems], key, own, theirs, traded, log.epochs)


def read_run_results(name: str, facts: RunFacts) -> RunResults:
    """From the results file alone: a run that was not evaluated has no rows, and a remark says so."""
    rows, problems = _read(facts.path)
    remarks = problems[:PROBLEMS] or ([] if rows else [f"{name}: nothing in {RESULTS}, so it is in no table."])
    return RunResults(name, facts, [replace(row, run=name) for row in rows], len(rows), remarks)


def evaluated_foreign_sets(path: Path) -> list[str]:
    """The foreign sets a run was evaluated on."""
    rows, _ = _read(path)
    return list(dict.fromkeys(str(row.foreign) for row in rows if row.task == "ood"))


def _read(path: Path) -> tuple[list[ResultRow], list[str]]:
    file = path / RESULTS
    rows, problems = read([file]) if file.exists() else ([], [])
    return [row for row in rows if row.of_test_images], problems


def _rows(
    run: str, evaluation: Evaluation, foreign: Sequence[str], images: int
) -> tuple[list[ResultRow], list[ResultRow], list[str]]:
    """Rows of the run's file, rows computed because the file lacks them, and remarks.

    Rows of the file count if they are of the present weights and of `images` in-domain images.
    """
    config = evaluation.cache.facts.config
    rows, problems = _read(evaluation.cache.facts.path)
    present = evaluation.cache.weights
    rows = [replace(row, weights=present) for row in rows if row.weights in (None, present)]
    outdated = {_evaluation_key(row) for row in rows if _in_domain_count(row) not in (None, images)}
    if outdated:
        problems.insert(0, f"{run}: results of other test images than there are now are left out.")
        rows = [row for row in rows if _evaluation_key(row) not in outdated]
    there = {(row.task, row.foreign) for row in rows if row.method == config.method}
    wanted: list[tuple[str, str | None]] = [("misclassification", None), *(("ood", name) for name in foreign)]
    wanted += [("open-set", "unknown")] if config.known is not None else []
    wanted.append(("noise", "noise"))
    missing = [each for each in wanted if each not in there]
    computed = [row for task, name in missing for row in evaluation.rows(task, [name] if name else [])]
    listed = ", ".join(name if task == "ood" and name else task for task, name in missing)
    remarks = [f"{run}: not in {RESULTS}, so computed for this page: {listed}."] if missing else []
    return rows, computed, [*remarks, *problems[:PROBLEMS]]


def _evaluation_key(row: ResultRow) -> tuple[str, str, str | float | None]:
    """Method, task and foreign set. Accuracy, whose rows hold no number of images, belongs to misclassification."""
    return row.method, "misclassification" if row.task == "accuracy" else row.task, row.foreign


def _in_domain_count(row: ResultRow) -> int | None:
    """The number of in-domain images behind a row."""
    if row.n_positive is None or row.n_negative is None:
        return None
    return row.n_negative + (row.n_positive if row.task == "misclassification" else 0)


def _score_images(evaluation: Evaluation, source: ImageSource, points: int) -> ScoredImages:
    stored, scores = evaluation.scores(source)
    labels, logits = stored.part("labels"), stored.part("logits")
    assert labels is not None
    assert logits is not None
    return ScoredImages(
        source.name,
        source.load,
        labels,
        logits,
        stored.part("log_joint"),
        {name: values.cpu() for name, values in scores.items()},
        sample_features(stored, points),
    )
