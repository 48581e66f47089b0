"""The questions of an evaluation as a person asks them, and the figures that answer each of them at a glance.

Every score and metric of every task make hundreds of columns. A reader begins with a few: of each question the metrics
named here, by the recommended score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dsui.evaluation.paper_tables import PaperRow
from dsui.evaluation.results import ResultRow
from dsui.report.columns import SCORES, Figure
from dsui.report.run_table import SHOWN
from dsui.report.significance import STAND_IN

STREAM = "prediction"
"""Stands in the place of a score where a figure does not depend on one."""
MARK = "*"
"""Behind the name of the recommended score."""
FEW_ATTACKS = 3
"""By default only the weakest attacks are shown: most of the usual thirteen are far from any real image."""


class Question(NamedTuple):
    """What a table asks, and the metrics that answer it; without any, all that there are."""

    title: str
    metrics: tuple[str, ...]


QUESTIONS = {
    "accuracy": Question("Accuracy and calibration", ("accuracy", "nll", "ece", "scaled_nll", "scaled_ece")),
    "misclassification": Question("Finding errors", SHOWN["misclassification"]),
    "ood": Question("Finding foreign images", SHOWN["ood"]),
    "open-set": Question("Finding unknown classes", SHOWN["open-set"]),
    "noise": Question("Finding noise", SHOWN["noise"]),
    "fgsm": Question("Finding attacks by FGSM", ("accuracy", *SHOWN["fgsm"])),
}
"""By task, in the order in which they are read."""


def question_of(task: str) -> Question:
    """Also for the task of a later version."""
    return QUESTIONS.get(task, Question(task, ()))


def marked_name(score: str) -> str:
    """The score's name for readers; the recommended one is marked."""
    return f"{SCORES.get(score, score)}{f' {MARK}' if score == STAND_IN else ''}"


def usual_figures(
    figures: Sequence[Figure],
    rows: Iterable[ResultRow | PaperRow],
    *,
    every_score: bool = False,
    every_metric: bool = False,
    every_attack: bool = False,
) -> list[Figure]:
    """Those of the recommended score in the metrics of each question; under attack, the weakest ones. `every_...`: all.

    The paper's rows and those of early versions lack the recommended score; of these the first score counts.
    """
    by_source: dict[tuple[str, type], dict[str | None, None]] = {}
    for row in rows:
        by_source.setdefault((row.task, type(row)), {})[row.score] = None
    usual = {
        (task, score)
        for (task, _), found in by_source.items()
        for score in (None, STREAM, *([] if task == "accuracy" else [_recommended(found)]))
    }
    attacks = set(figures) if every_attack else _weakest_attacks(figures)
    return [
        figure
        for figure in figures
        if (every_score or (figure.task, figure.score) in usual)
        and (every_metric or figure.metric in (question_of(figure.task).metrics or (figure.metric,)))
        and (figure.task != "fgsm" or figure in attacks)
    ]


def _recommended(scores: Iterable[str | None]) -> str | None:
    rankings = [score for score in scores if score not in {STREAM, None}]
    return STAND_IN if STAND_IN in rankings else next(iter(rankings), None)


def _weakest_attacks(figures: Sequence[Figure]) -> set[Figure]:
    """For each data set and backbone."""
    by_home: dict[tuple[str, str | None], dict[float, list[Figure]]] = {}
    for figure in figures:
        if figure.task == "fgsm" and isinstance(figure.foreign, int | float):
            by_home.setdefault((figure.data, figure.backbone), {}).setdefault(figure.foreign, []).append(figure)
    return {
        figure
        for strengths in by_home.values()
        for strength in sorted(strengths)[:FEW_ATTACKS]
        for figure in strengths[strength]
    }
