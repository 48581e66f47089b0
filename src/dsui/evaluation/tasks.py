"""The five questions put to a trained run, each answered with results rows.

    misclassification   do errors on the in-domain images score above correct predictions?
    ood                 do images of other data sets score above in-domain images?
    open-set            do images of unknown classes, for a run trained on some classes only?
    noise               do 10,000 images of uniform noise?
    fgsm                do the in-domain images after an attack, at several strengths, and how many are still right?

In-domain are all images of the test split (or of the held-out part), correctly classified or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.overlap import overlap_warning
from dsui.detectors import registry as detectors
from dsui.detectors.detector import Detector
from dsui.errors import DsuiError
from dsui.evaluation.cache import ImageSource, OutputCache, StoredOutputs
from dsui.evaluation.metrics import ranking_metrics, selective_metrics
from dsui.evaluation.reliability import calibration_metrics
from dsui.evaluation.results import ResultRow, commit, versions
from dsui.evaluation.sources import ImageSources
from dsui.methods.registry import effective_options, find
from dsui.outputs import Outputs
from dsui.runs.images import usual_share
from dsui.scores import Moments, Reference, all_scores, detector_scores, reference, sirc

TASKS = ("misclassification", "ood", "open-set", "noise", "fgsm")
EPSILONS = (2 / 255, 4 / 255, 8 / 255, *(step / 10 for step in range(1, 11)))
"""The usual small attacks, and those of the paper."""
STREAMS = {"prediction": "logits", "density": "class_scores"}
"""What each stream predicts by. These stand in the place of a score in rows that are no ranking."""
NAMED = 5
"""Most classes that a note names."""
FIT_IMAGES = 50_000
"""Most training images a detector is fitted to: a random choice from a larger set."""
MOMENTS_OF, FEW = 10, 100
"""Every tenth of them tells what a detector's score is in domain, because kNN would take long over all; of fewer than a
hundred, all do."""

Progress = Callable[[str, int, int], None]
Scores = dict[str, Tensor]


class Evaluation:
    """One run's scores, set by set, and the tasks made of them. Detectors are named as in `dsui.detectors.registry`."""

    def __init__(
        self,
        cache: OutputCache,
        sources: ImageSources,
        detector_names: Sequence[str] = (),
        progress: Progress = lambda _name, _done, _total: None,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.cache, self.sources, self.progress, self.warn = cache, sources, progress, warn
        self._unfitted = {name: detectors.build(name) for name in detector_names}
        # only detectors have enough to compute to be worth a GPU, whose start alone takes longer than all the scores
        self._device = cache.device if self._unfitted else torch.device("cpu")

    def answers(
        self, tasks: Sequence[str], foreign: Sequence[str] = (), epsilons: Sequence[float] = EPSILONS
    ) -> list[ResultRow]:
        """The results of several tasks; while the model looks at one set, the next one is read."""
        needed = [self.sources.own(), self.sources.training()]
        needed += [self.sources.foreign(name) for name in foreign if "ood" in tasks]
        for source in self.cache.read_ahead(needed):
            self._outputs(source)
        for sentence in self.sources.left_out_notes():
            self.warn(sentence)
        return [row for task in tasks for row in self.rows(task, foreign, epsilons)]

    def rows(self, task: str, foreign: Sequence[str] = (), epsilons: Sequence[float] = EPSILONS) -> Iterator[ResultRow]:
        """The results of one task."""
        match task:
            case "misclassification":
                yield from self.misclassification()
            case "ood":
                for name in foreign:
                    yield from self._against(task, name, self.sources.foreign(name))
            case "open-set":
                yield from self._against(task, "unknown", self.sources.unknown())
            case "noise":
                yield from self._against(task, "noise", self.sources.noise())
            case "fgsm":
                for epsilon in epsilons:
                    yield from self._against(task, epsilon, self.sources.attacked(epsilon))
            case _:
                raise DsuiError(f"no task {task!r}; choose from {', '.join(TASKS)}.")

    def misclassification(self) -> Iterator[ResultRow]:
        """Accuracy and calibration of each stream, then every score against the predicting stream's errors."""
        stored, scores = self._own
        for stream, part in STREAMS.items():
            if (values := stored.part(part)) is not None:
                yield self._accuracy("accuracy", None, stream, values, stored)
        labels, logits = stored.part("labels"), stored.part("logits")
        assert labels is not None
        assert logits is not None
        errors = (logits.argmax(1) != labels).to(self._device)
        for name, values in scores.items():
            metrics = ranking_metrics(values, errors) | selective_metrics(values, errors)
            yield self._row("misclassification", None, name, metrics, errors, stored)

    def scores(self, source: ImageSource) -> tuple[StoredOutputs, Scores]:
        """Every score of a set's images, chunk by chunk from its outputs."""
        stored = self._outputs(source)
        parts = [self._scored(chunk.to(self._device)) for chunk in stored.chunks(features=bool(self._unfitted))]
        return stored, {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @cached_property
    def _own(self) -> tuple[StoredOutputs, Scores]:
        """Of the in-domain images, which every task compares with."""
        found = self.scores(self.sources.own())
        self._warn_of_absent(found[0])
        return found

    def _against(self, task: str, foreign: str | float, source: ImageSource) -> Iterator[ResultRow]:
        _, own = self._own
        stored, theirs = self.scores(source)
        if task == "ood":
            self._warn_of_overlap(source.name, stored)
        if task == "fgsm" and (logits := stored.part("logits")) is not None:
            yield self._accuracy(task, foreign, "prediction", logits, stored)
        for name, values in own.items():
            joined = torch.cat([values, theirs[name]])
            positive = torch.arange(len(joined), device=joined.device) >= len(values)
            yield self._row(task, foreign, name, ranking_metrics(joined, positive), positive, stored)

    def _accuracy(
        self, task: str, foreign: str | float | None, stream: str, values: Tensor, stored: StoredOutputs
    ) -> ResultRow:
        """How often a stream is right on a set with labels, and how well calibrated, by its logits or scores [N, C]."""
        labels = stored.part("labels")
        assert labels is not None
        return self._row(task, foreign, stream, calibration_metrics(values, labels), None, stored)

    def _scored(self, outputs: Outputs) -> Scores:
        scores = all_scores(outputs, self._reference)
        for name, (detector, moments) in self._detectors.items():
            own, joint = detector_scores(name)
            scores[own] = detector.score(outputs)
            scores.setdefault(joint, sirc(outputs.logits, scores[own], *moments))
        return scores

    def _outputs(self, source: ImageSource) -> StoredOutputs:
        return self.cache.get(source, lambda done, total: self.progress(source.name, done, total))

    @cached_property
    def _training(self) -> StoredOutputs:
        return self._outputs(self.sources.training())

    @cached_property
    def _reference(self) -> Reference:
        return reference(self._training.chunks(features=False))

    @cached_property
    def _detectors(self) -> dict[str, tuple[Detector, Moments]]:
        """With the moments of their scores of training images."""
        if not self._unfitted:
            return {}
        kept, parts, start = _choice(self._training.count), [], 0
        for chunk in self._training.chunks():
            parts.append(_what_detectors_read(chunk, kept[(kept >= start) & (kept < start + len(chunk))] - start))
            start += len(chunk)
        training = Outputs.concatenated(parts).to(self._device)
        step = MOMENTS_OF if len(training) >= FEW else 1
        sample = training.select(torch.arange(0, len(training), step, device=self._device))
        fitted = {}
        for name, detector in self._unfitted.items():
            if obstacle := detectors.obstacle(name, training):
                self.warn(f"{self.cache.facts.config.method} has {obstacle}, so {name} is left out.")
                continue
            try:
                detector.fit(training)
                fitted[name] = detector, Moments.of(detector.score(sample))
            except ValueError as error:  # too few images for this one, say, which is no reason to lose the others
                self.warn(f"{name} is left out: {error}")
        return fitted

    def _warn_of_absent(self, stored: StoredOutputs) -> None:
        labels = stored.part("labels")
        assert labels is not None
        seen = set(labels.unique().tolist())
        if absent := [name for label, name in enumerate(self.cache.facts.classes) if label not in seen]:
            named = f"{', '.join(absent[:NAMED])}{' and others' * (len(absent) > NAMED)}"
            self.warn(f"no image evaluated is of the class {named}, so that the figures say nothing of it.")

    def _warn_of_overlap(self, name: str, stored: StoredOutputs) -> None:
        empty = torch.zeros(0, 1, 1, 1, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)
        home = MemorySet(self.cache.facts.config.data, self.cache.facts.classes, *empty)
        if sentence := overlap_warning(home, MemorySet(name, stored.classes, *empty), self.sources.root):
            self.warn(sentence)

    def _row(
        self,
        task: str,
        foreign: str | float | None,
        score: str,
        metrics: dict[str, Any],
        positive: Tensor | None,
        stored: StoredOutputs,
    ) -> ResultRow:
        facts, sources = self.cache.facts, self.sources
        config = facts.config
        positives = None if positive is None else int(positive.sum())
        options = effective_options(config.method, config.recipe, config.options)
        cost = {"passes": float(stored.passes), "seconds_per_1000": 1000 * stored.seconds / stored.count}
        return ResultRow(
            run=facts.name,
            method=config.method,
            objective=find(config.method).objective_name(options),
            data=config.data,
            backbone=config.backbone,
            recipe=self._recipe,
            seed=config.seed,
            task=task,
            foreign=foreign,
            score=score,
            metrics={name: float(value) for name, value in metrics.items()} | cost,
            n_positive=positives,
            n_negative=None if positive is None or positives is None else len(positive) - positives,
            protocol=f"{task}, all in-domain images of {sources.part}",
            split=sources.split,
            versions=versions(),
            device=stored.device,
            seconds=round(stored.seconds, 3),
            commit=self._commit,
            weights=self.cache.weights,
        )

    @cached_property
    def _recipe(self) -> str:
        """How the run was trained; on the test images also what share of the training images it did without, if that is
        not the usual one. Scored on that share itself, rows have a protocol of their own."""
        facts = self.cache.facts
        config = facts.config
        fewer = self.sources.part == "test" and config.held_out != usual_share(config.data)
        return facts.training + (f", calibration={config.held_out:g}" if fewer else "")

    @cached_property
    def _commit(self) -> str | None:
        return commit()


def _choice(count: int) -> Tensor:
    """Indices of at most FIT_IMAGES of `count` images, ascending, drawn so that no order of classes decides."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:FIT_IMAGES].sort().values


def _what_detectors_read(outputs: Outputs, kept: Tensor) -> Outputs:
    """These images, without what sampling methods add."""
    samples = None if outputs.samples is None else outputs.samples[:, :0]  # of which only their existence is told
    read = Outputs(
        outputs.features, outputs.logits, outputs.labels, samples=samples, weight=outputs.weight, bias=outputs.bias
    )
    return read.select(kept)
