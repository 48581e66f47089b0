"""Everything a page says of one run: what it gave for its own and for foreign images, its results rows and its log.

Outputs come from the run's cache, or are computed and kept there. Rows come from its results.jsonl; those of
misclassification, foreign sets, unknown classes and noise that are not there are computed from outputs, for the page
alone. Attacks need a backward pass for each strength and are left to `dsui evaluate`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dsui.data.dataset import ImageSet
from dsui.evaluation.cache import ImageSource
from dsui.evaluation.results import ResultRow, read
from dsui.evaluation.tasks import Evaluation
from dsui.report.columns import SCORES, UNKNOWN
from dsui.report.tsne import sample_features
from dsui.runs.folder import LOG, RESULTS
from dsui.runs.model import RunFacts

PROBLEMS = 5
"""Most unusable lines of a results file that are named."""


@dataclass(frozen=True, eq=False)
class SeenImages:
    """N images of one set as the model saw them."""

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
    chosen: Tensor
    """Indices of the images whose features are at hand."""
    features: Tensor
    """[chosen, M]"""

    @property
    def correct(self) -> Tensor:
        """[N] of in-domain images."""
        return self.logits.argmax(1) == self.labels


@dataclass(frozen=True, eq=False)
class Record:
    """What a run's results file says. `name` is shown; no two runs of a page share it."""

    name: str
    facts: RunFacts
    rows: list[ResultRow]
    rows_read: int
    """How many of them are from the run's results file; the others were computed for the page."""
    remarks: list[str]
    """What was computed, and what could not be used."""


@dataclass(frozen=True, eq=False)
class Evidence(Record):
    """And what it gave for single images. `key` is its address within the page."""

    key: str
    own: SeenImages
    foreign: SeenImages
    log: list[dict[str, Any]]


def score_label(name: str) -> str:
    """As a reader knows a score."""
    return SCORES.get(name, name.replace("_", " "))


def gather(name: str, key: str, asked: Evaluation, foreign: Sequence[str], points: int) -> Evidence:
    """`foreign`: names of foreign sets, the first of which is shown image by image; noise where there is none.

    For a run that knows some classes only, the unknown ones are shown. `points`: most features of a set.
    """
    facts, sources = asked.cache.facts, asked.sources
    others = [other for other in foreign if other != facts.config.data]
    if facts.config.known is not None:
        shown = sources.unknown()
    else:
        shown = sources.foreign(others[0]) if others else sources.noise()
    title = shown.name if facts.config.known is None else UNKNOWN
    own = _seen(asked, sources.own(), points)
    read_rows, computed, remarks = _rows(name, asked, others, len(own.labels))
    log, torn = read_log(facts.path / LOG)
    theirs = replace(_seen(asked, shown, points), name=title)
    rows = [replace(row, run=name) for row in (*read_rows, *computed)]
    return Evidence(name, facts, rows, len(read_rows), [*remarks, *torn], key, own, theirs, log)


def record(name: str, facts: RunFacts) -> Record:
    """Nothing is computed: a run that was not evaluated has no rows, and a remark says so."""
    rows, problems = _read(facts.path)
    remarks = problems[:PROBLEMS] or ([] if rows else [f"{name}: nothing in {RESULTS}, so it is in no table."])
    return Record(name, facts, [replace(row, run=name) for row in rows], len(rows), remarks)


def foreign_sets(path: Path) -> list[str]:
    """The foreign sets a run was evaluated on."""
    rows, _ = _read(path)
    return list(dict.fromkeys(str(row.foreign) for row in rows if row.task == "ood"))


def read_log(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a run's log, and a sentence where some or all cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        return [], [f"{path} cannot be read ({error.strerror})."]
    rows, bad = [], 0
    for line in lines:
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            bad += 1
    return rows, [f"Lines of {path} that cannot be read: {bad}."] if bad else []


def _read(path: Path) -> tuple[list[ResultRow], list[str]]:
    file = path / RESULTS
    rows, problems = read([file]) if file.exists() else ([], [])
    return [row for row in rows if row.of_test_images], problems


def _rows(
    run: str, asked: Evaluation, foreign: Sequence[str], images: int
) -> tuple[list[ResultRow], list[ResultRow], list[str]]:
    """Rows from the run's file that are about as many in-domain `images`, rows computed because they are not there, and
    remarks."""
    config = asked.cache.facts.config
    rows, problems = _read(asked.cache.facts.path)
    present = asked.cache.weights
    rows = [replace(row, weights=present) for row in rows if row.weights in (None, present)]
    outdated = {_question(row) for row in rows if _in_domain(row) not in (None, images)}
    if outdated:
        problems.insert(0, f"{run}: results of other test images than there are now are left out.")
        rows = [row for row in rows if _question(row) not in outdated]
    there = {(row.task, row.foreign) for row in rows if row.method == config.method}
    wanted: list[tuple[str, str | None]] = [("misclassification", None), *(("ood", name) for name in foreign)]
    wanted += [("open-set", "unknown")] if config.known is not None else []
    wanted.append(("noise", "noise"))
    missing = [question for question in wanted if question not in there]
    computed = [row for task, name in missing for row in asked.rows(task, [name] if name else [])]
    told = ", ".join(name if task == "ood" and name else task for task, name in missing)
    remarks = [f"{run}: not in {RESULTS}, so computed for this page: {told}."] if missing else []
    return rows, computed, [*remarks, *problems[:PROBLEMS]]


def _question(row: ResultRow) -> tuple[str, str, str | float | None]:
    """Accuracy, whose rows tell no number of images, is asked with the errors."""
    return row.method, "misclassification" if row.task == "accuracy" else row.task, row.foreign


def _in_domain(row: ResultRow) -> int | None:
    """How many in-domain images it is about."""
    if row.n_positive is None or row.n_negative is None:
        return None
    return row.n_negative + (row.n_positive if row.task == "misclassification" else 0)


def _seen(asked: Evaluation, source: ImageSource, points: int) -> SeenImages:
    stored, scores = asked.scores(source)
    labels, logits = stored.part("labels"), stored.part("logits")
    assert labels is not None
    assert logits is not None
    return SeenImages(
        source.name,
        source.load,
        labels,
        logits,
        stored.part("log_joint"),
        {name: values.cpu() for name, values in scores.items()},
        *sample_features(stored, points),
    )
