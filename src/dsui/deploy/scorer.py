"""The scores of a run's images as predictions see them, also those of a detector, and those of its calibration images.

Training stored the usual scores of the calibration images. A variant of a score, the score of a detector, and those of
older runs are computed from the images, which must still be where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dsui.data.registry import ARRAYS
from dsui.deploy.score_choice import ScoreChoice
from dsui.detectors import registry
from dsui.detectors.fitted import FittedDetector
from dsui.errors import DsuiError
from dsui.evaluation.cache import StoredOutputs
from dsui.evaluation.evaluate import open_evaluation
from dsui.evaluation.fitting import fit_detectors
from dsui.evaluation.tasks import Evaluation
from dsui.limits import Criterion
from dsui.outputs import Outputs
from dsui.progress import Progress, silent
from dsui.runs.acceptance import Thresholds, choose
from dsui.runs.calibration import Calibration, even_choice
from dsui.runs.model import RunFacts
from dsui.score_table import is_variant
from dsui.scores import Reference, all_scores


class Scorer(NamedTuple):
    """`reference` is what training stored of the training images; `device` is where the detector was fitted."""

    reference: Reference
    detector: FittedDetector | None = None
    device: torch.device = torch.device("cpu")

    def scores(self, outputs: Outputs) -> dict[str, Tensor]:
        """Every score of the images by name, [N] each, on the CPU."""
        if self.detector is not None:
            outputs = outputs.to(self.device)
        scores = all_scores(outputs, self.reference)
        if self.detector is not None:
            scores |= self.detector.scores(outputs, scores)
        return {name: values.cpu() for name, values in scores.items()}

    def tensors(self) -> dict[str, Tensor]:
        """What its detector learned."""
        return {} if self.detector is None else self.detector.tensors()

    def of_set(self, stored: StoredOutputs) -> ScoredSet:
        """The scores of a whole set, chunk by chunk."""
        parts, wrong = [], []
        for chunk in stored.chunks(features=self.detector is not None):
            parts.append(self.scores(chunk))
            assert chunk.labels is not None
            wrong.append(chunk.predictions != chunk.labels)
        return ScoredSet({name: torch.cat([part[name] for part in parts]) for name in parts[0]}, torch.cat(wrong))


class ScoredSet(NamedTuple):
    """The scores of N images by name, [N] each, and whether each is predicted wrongly, [N]. Of foreign images, whose
    labels are of other classes, the latter means nothing."""

    scores: dict[str, Tensor]
    errors: Tensor

    def select(self, indices: Tensor) -> ScoredSet:
        """Some of the images."""
        return ScoredSet({name: values[indices] for name, values in self.scores.items()}, self.errors[indices])


class Chooser(NamedTuple):
    """All that choosing thresholds takes: the scores of the calibration images, and what computes those of others."""

    choice: ScoreChoice
    scorer: Scorer
    calibration: ScoredSet

    def choose(self, asked: Criterion) -> Thresholds:
        """A DsuiError where the calibration images are too few for what is asked."""
        return choose(
            self.choice.finds(), self.calibration.scores, self.calibration.errors, asked, self.choice.detector
        )


def prepare(
    facts: RunFacts,
    calibration: Calibration,
    choice: ScoreChoice,
    device: torch.device,
    *,
    root: Path | None = None,
    skip_bad: bool = False,
    keep_outputs: bool = True,
    progress: Progress = silent,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> Chooser:
    """Read the scores of the calibration images or compute them, and fit the detector if there is one.

    The other settings are those of `dsui.evaluation.evaluate.open_evaluation`.
    """
    choice.check()
    calibration.check()
    stored, wanted = calibration.all_scores, choice.finds()
    scorer = Scorer(calibration.reference)
    if choice.detector is None and (not _has_more(calibration, wanted) or set(wanted) <= set(stored)):
        choice.check_available(stored, facts.config.method)
        return Chooser(choice, scorer, ScoredSet(stored, calibration.errors))
    _check_images(facts, choice)
    with open_evaluation(
        facts,
        device,
        part="held-out",
        root=root,
        skip_bad=skip_bad,
        keep_outputs=keep_outputs,
        progress=progress,
        warn=warn,
    ) as evaluation:
        held_out = evaluation.outputs(evaluation.sources.own())
        if choice.detector is not None:
            scorer = Scorer(calibration.reference, _fit(choice.detector, evaluation), device)
        found = scorer.of_set(held_out)
        choice.check_available(found.scores, facts.config.method)
        return Chooser(choice, scorer, found.select(even_choice(held_out.count)))


def _has_more(calibration: Calibration, wanted: Iterable[str]) -> bool:
    """Whether the run's images may give a score that is not stored: every other one is known to be missing."""
    return not calibration.scores or any(map(is_variant, wanted))


def _fit(name: str, evaluation: Evaluation) -> FittedDetector:
    """An error where the run does not have what the detector needs."""
    reasons: list[str] = []
    training = evaluation.outputs(evaluation.sources.training())
    cache = evaluation.cache
    fitted = fit_detectors(
        {name: registry.build(name)}, training, cache.facts.config.method, cache.device, reasons.append
    )
    if name not in fitted:
        raise DsuiError(f"the detector {name} cannot be used with this run: {' '.join(reasons)}")
    return fitted[name]


def _check_images(facts: RunFacts, choice: ScoreChoice) -> None:
    """Raise where the images of the run are known to be gone."""
    if facts.config.data == ARRAYS or not facts.path.is_dir():
        scores = f"the detector {choice.detector}" if choice.detector else " and ".join(choice.finds())
        raise DsuiError(
            f"{scores} needs the images that the model was trained on, and they are not kept; choose another score, or "
            "train on a folder of images with `dsui train`."
        )
