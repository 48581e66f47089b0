"""What a verdict is made of, collected from the results rows of one run.

Rows count if they are of the run's present weights and of its own method; of rows of the same kind the last. A run
without rows of test images is judged by those of the images it held out.

What passes is told for the thresholds that the run keeps (`dsui threshold --save`), if the evaluation was done with
them. Otherwise it is told for `uncertainty`, by which `dsui predict --coverage 0.95` accepts: rows hold the shares at
the threshold that keeps 95 % of the evaluated in-domain images, and one chosen by held-out images differs from it by
chance.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dsui.backbones.registry import BACKBONES
from dsui.data.registry import FOLDER
from dsui.detectors.registry import names as detector_names
from dsui.errors import RunError
from dsui.evaluation.intervals import share_interval
from dsui.evaluation.reliability import SCALED
from dsui.evaluation.results import ResultRow, read
from dsui.evaluation.saved_acceptance import BY, NEGATIVE, POSITIVE, usable_thresholds
from dsui.evaluation.statistics import Interval
from dsui.evaluation.verdict_limits import CLEARLY_FEWER, FOUND, PASSED
from dsui.runs.acceptance import Thresholds
from dsui.runs.calibration import stored_calibration
from dsui.runs.folder import RESULTS
from dsui.runs.model import RunFacts, short_fingerprint
from dsui.score_table import NAMES, SIRC, detector_scores

COVERAGE = 0.95
"""The share of in-domain images that is accepted."""
SCORE = "uncertainty"
"""The score that accepts."""
FOREIGNNESS = "foreignness"
NOT_DEPLOYED = "odin"
"""It needs a backward pass for each image, which predictions do not make."""
NOISE, UNKNOWN = "noise", "unknown classes"
FOREIGN_TASKS = ("ood", "open-set", "noise")
JUDGED = ("misclassification", *FOREIGN_TASKS)
Rows = Mapping[tuple[str, str | float | None, str | None], ResultRow]
"""By task, foreign set and score."""


class ForeignSet(NamedTuple):
    """Foreign images of one kind, and which share of them is accepted."""

    name: str
    images: int
    passed: float

    @property
    def interval(self) -> Interval:
        return share_interval(self.passed, self.images)

    @property
    def phrase(self) -> str:
        return f"{NOISE} images" if self.name == NOISE else f"foreign images ({self.name})"


class BetterScore(NamedTuple):
    """The option that chooses another score, and what it reaches; the same images tell both, so it may reach less on
    others."""

    option: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Figures are fractions; None where the evaluation does not have them."""

    run: str
    """Its folder, as a shell takes it."""
    images_folder: str | None = None
    """The data of a network that learned from a folder of images alone, as a shell takes it: folder:PATH."""
    classes: int
    held_out: int
    on_features: bool = False
    part: str = "test"
    """The in-domain images: test or held-out."""
    threshold: str = f"coverage {COVERAGE:g}"
    """Where what passes was measured, as a sentence names it."""
    saved: bool = False
    """Whether that is the threshold that the run keeps."""
    evaluate_again: str | None = None
    """The command that measures what the run's threshold lets through, where the evaluation was done without it."""
    coverage: float = COVERAGE
    """The share of in-domain images that is accepted."""
    images: int = 0
    accuracy: float | None = None
    majority: float | None = None
    """The share of the most frequent class."""
    errors: int | None = None
    errors_auroc: float = math.nan
    risk: float | None = None
    """The share of wrong predictions among the accepted ones."""
    foreign: tuple[ForeignSet, ...] = ()
    ece: float | None = None
    """Of the probabilities that a user is shown: scaled, where the run has a temperature."""
    confidence: float | None = None
    temperature: float | None = None
    better_for_errors: BetterScore | None = None
    better_for_foreign: BetterScore | None = None
    detectors_tried: bool = False

    @property
    def guess(self) -> float:
        """The accuracy of always naming the most frequent class, or of guessing."""
        return max(1 / self.classes, self.majority or 0.0)


def facts_of_run(run: RunFacts) -> Facts | None:
    """The facts of the rows in the run's folder; None where it was not evaluated."""
    path = run.path / RESULTS
    return facts_of_rows(run, read([path])[0]) if path.exists() else None


def facts_of_rows(run: RunFacts, rows: Iterable[ResultRow], part: str | None = None) -> Facts | None:
    """None where no row counts. `part`: the in-domain images, by default test images if there are rows of them."""
    present = short_fingerprint(run.fingerprint())
    own = [row for row in rows if row.method == run.config.method and row.weights in (None, present)]
    if part is None:
        part = "test" if any(row.of_test_images for row in own) else "held-out"
    found = {(row.task, row.foreign, row.score): row for row in own if row.of_test_images == (part == "test")}
    if not found:
        return None
    accuracy = found.get(("accuracy", None, "prediction"))
    metrics = {} if accuracy is None else accuracy.metrics
    shown = SCALED if f"{SCALED}ece" in metrics else ""
    errors = found.get(("misclassification", None, SCORE))
    thresholds = usable_thresholds(run)
    by_them = None if thresholds is None or not _is_by(found.values(), thresholds) else thresholds
    by_score = _foreign_sets(found, POSITIVE if by_them else "fpr95")
    data = run.config.data
    facts = Facts(
        run=shlex.quote(str(run.path)),
        images_folder=shlex.quote(data) if data.startswith(FOLDER) and run.config.backbone in BACKBONES else None,
        classes=len(run.classes),
        on_features=run.config.on_features,
        held_out=_held_out(run),
        part=part,
        images=next(filter(None, map(_in_domain_images, found.values())), 0),
        accuracy=metrics.get("accuracy"),
        majority=metrics.get("majority"),
        errors=None if errors is None else errors.n_positive,
        errors_auroc=math.nan if errors is None else errors.metrics.get("auroc", math.nan),
        risk=None if errors is None else _finite(errors.metrics.get("risk_at_95")),
        foreign=tuple(by_score.get(SCORE, {}).values()),
        ece=metrics.get(f"{shown}ece"),
        confidence=metrics.get(f"{shown}confidence"),
        temperature=metrics.get("temperature"),
        better_for_errors=_finds_errors(found, thresholds),
        better_for_foreign=_turns_away(by_score, thresholds),
        detectors_tried=any(_detector(score) for score in by_score),
    )
    if thresholds is None:
        return facts
    if by_them is None:
        command = [
            "dsui",
            "evaluate",
            str(run.path),
            *(["--detectors", thresholds.detector] if thresholds.detector else []),
        ]
        return replace(facts, evaluate_again=shlex.join(command))
    name = f"the saved threshold of {thresholds.asked.name}"
    return replace(facts, saved=True, threshold=name, **_of_accepted(errors, thresholds))


def _is_by(rows: Iterable[ResultRow], thresholds: Thresholds) -> bool:
    """Whether the rows say what these thresholds accept; one with images of one kind alone has nothing to say."""
    judged = [row for row in rows if row.score == SCORE and row.task in JUDGED and row.n_positive and row.n_negative]
    return bool(judged) and all(row.metrics.get(BY) == thresholds.value for row in judged)


def _of_accepted(errors: ResultRow | None, thresholds: Thresholds) -> dict[str, Any]:
    """The coverage of saved thresholds, and the share of errors in it, from the row of errors."""
    if errors is None or not errors.n_positive or not errors.n_negative:
        return {"coverage": thresholds.coverage}
    wrong = errors.metrics[POSITIVE] * errors.n_positive
    kept = wrong + errors.metrics[NEGATIVE] * errors.n_negative
    coverage = kept / (errors.n_positive + errors.n_negative)
    return {"coverage": coverage, "risk": wrong / kept if kept else None}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _in_domain_images(row: ResultRow) -> int | None:
    """The number of in-domain images behind a row."""
    if row.n_positive is None or row.n_negative is None:
        return None
    return row.n_negative + (row.n_positive if row.task == "misclassification" else 0)


def _held_out(run: RunFacts) -> int:
    try:
        return len(stored_calibration(run).uncertainties)
    except RunError:  # of an early version
        return 0


def _finds_errors(rows: Rows, thresholds: Thresholds | None) -> BetterScore | None:
    """The other score that finds errors best, if it finds them well."""
    found = {
        score: row.metrics.get("auroc", math.nan)
        for (task, _, score), row in rows.items()
        if task == "misclassification" and score is not None and _can_be_chosen(score, thresholds)
    }
    good = {score: auroc for score, auroc in found.items() if auroc >= FOUND[1]}
    return max((BetterScore(_option(score), auroc) for score, auroc in good.items()), key=_share, default=None)


def _foreign_sets(rows: Rows, metric: str) -> dict[str, dict[str, ForeignSet]]:
    """By score and by name. `metric` is the share of foreign images that passes by `SCORE`; for the other scores it is
    that at the threshold which keeps 95 % of the in-domain images."""
    found: dict[str, dict[str, ForeignSet]] = {}
    for (task, name, score), row in rows.items():
        passed = _finite(row.metrics.get(metric if score == SCORE else "fpr95"))
        if task in FOREIGN_TASKS and score is not None and row.n_positive and passed is not None:
            called = UNKNOWN if task == "open-set" else str(name)
            found.setdefault(score, {})[called] = ForeignSet(called, row.n_positive, passed)
    return found


def _turns_away(by_score: Mapping[str, Mapping[str, ForeignSet]], thresholds: Thresholds | None) -> BetterScore | None:
    """A score that turns every foreign set away, and clearly more than now: `FOREIGNNESS` if it does, since it is
    recommended beforehand; else the one by which the fewest pass."""
    worst = {
        score: max(each.passed for each in sets.values())
        for score, sets in by_score.items()
        if _can_be_chosen(score, thresholds) and sets.keys() == by_score.get(SCORE, {}).keys()
    }
    now = max((each.passed for each in by_score.get(SCORE, {}).values()), default=0.0)
    good = {score: passed for score, passed in worst.items() if passed <= min(PASSED[1], CLEARLY_FEWER * now)}
    if FOREIGNNESS in good:
        return BetterScore(_option(FOREIGNNESS), good[FOREIGNNESS])
    return min((BetterScore(_option(score), passed) for score, passed in good.items()), key=_share, default=None)


def _share(better: BetterScore) -> float:
    return better.share


def _can_be_chosen(score: str, thresholds: Thresholds | None) -> bool:
    """Whether it is another score than those in use, no joint one, and one that predictions can compute."""
    used = {SCORE, NOT_DEPLOYED} | (set() if thresholds is None else {limit.score for limit in thresholds.limits})
    return score not in used and not score.startswith(SIRC)


def _option(score: str) -> str:
    detector = _detector(score)
    return f"--score {score}" if detector is None else f"--detector {detector}"


def _detector(score: str) -> str | None:
    """The detector that gives a score; None for one that the model itself gives, as `energy`."""
    return {detector_scores(name)[0]: name for name in detector_names()}.get(score) if score not in NAMES else None
