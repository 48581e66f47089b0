"""The five tasks of an evaluation. Each asks a trained run a question and answers it with results rows.

    misclassification   do errors on the in-domain images score above correct predictions?
    ood                 do images of other data sets score above in-domain images?
    open-set            do images of unknown classes, for a run trained on some classes only?
    noise               do 10,000 images of uniform noise? For features: vectors whose features are drawn one by one
                        from the training features.
    fgsm                do the in-domain images after an attack, at several strengths, and how many are still right?

In-domain are all images of the test split (or of the held-out part), correctly classified or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.overlap import overlap_warning
from dsui.detectors import registry as detectors
from dsui.detectors.fitted import FittedDetector
from dsui.detectors.odin import Odin
from dsui.errors import DsuiError
from dsui.evaluation import TASKS
from dsui.evaluation.cache import ImageSource, OutputCache, StoredOutputs
from dsui.evaluation.fitting import choose_fit_images, fit_detectors, moment_images
from dsui.evaluation.metrics import ranking_metrics, selective_metrics
from dsui.evaluation.reliability import calibration_metrics, stated_metrics
from dsui.evaluation.results import ResultRow, commit, versions
from dsui.evaluation.saved_acceptance import acceptance, usable_thresholds
from dsui.evaluation.sources import ImageSources
from dsui.excerpt import excerpt
from dsui.methods.registry import effective_options, find
from dsui.outputs import Outputs
from dsui.progress import Progress, silent
from dsui.runs.acceptance import Thresholds
from dsui.runs.calibration import stored_temperature
from dsui.runs.images import usual_share
from dsui.score_table import detector_scores
from dsui.scores import Moments, Reference, all_scores, reference, sirc

EPSILONS = (2 / 255, 4 / 255, 8 / 255, *(step / 10 for step in range(1, 11)))
"""The usual small attacks, and those of the paper."""
STREAMS = {"prediction": "logits", "density": "class_scores"}
"""The part of the outputs that each stream predicts by. Rows that do not rank have a stream in the place of a score."""
MOST_NAMED = 5
"""The most classes that a note names."""
Scores = dict[str, Tensor]


class Evaluation:
    """The scores of one run, set by set, and the tasks made of them. Close it, or use it in a `with` block.

    Detectors are named as in `dsui.detectors.registry`. `progress` is called with the name of a set and the numbers of
    images done and in all, `warn` with a sentence.
    """

    def __init__(
        self,
        cache: OutputCache,
        sources: ImageSources,
        detector_names: Sequence[str] = (),
        progress: Progress = silent,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.cache, self.sources, self.progress, self.warn = cache, sources, progress, warn
        every = {name: detectors.build(name) for name in detector_names}
        self._perturbing = next((each for each in every.values() if isinstance(each, Odin)), None)
        self._unfitted = {name: each for name, each in every.items() if not isinstance(each, Odin)}
        # only detectors have enough to compute to be worth a GPU, whose start alone takes longer than all the scores
        self._device = cache.device if self._unfitted else torch.device("cpu")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cache.close()

    def evaluate(
        self, tasks: Sequence[str], foreign: Sequence[str] = (), epsilons: Sequence[float] = EPSILONS
    ) -> list[ResultRow]:
        """The results of several tasks; while the model predicts one set, the next ones are read."""
        needed = [self.sources.own(), self.sources.training()]
        needed += [self.sources.foreign(name) for name in foreign if "ood" in tasks]
        self._compute_ahead(needed)
        if self._odin is not None:
            self._compute_ahead([self.sources.perturbed(source, self._odin[0]) for source in (needed[0], *needed[2:])])
        for sentence in self.sources.left_out_notes():
            self.warn(sentence)
        return [row for task in tasks for row in self.rows(task, foreign, epsilons)]

    def rows(self, task: str, foreign: Sequence[str] = (), epsilons: Sequence[float] = EPSILONS) -> Iterator[ResultRow]:
        """The results of one task. Tasks without foreign sets or attacks ignore `foreign` and `epsilons`."""
        match task:
            case "misclassification":
                yield from self.misclassification()
            case "ood":
                for name in foreign:
                    yield from self._rank_against(task, name, self.sources.foreign(name))
            case "open-set":
                yield from self._rank_against(task, "unknown", self.sources.unknown())
            case "noise":
                yield from self._rank_against(task, "noise", self.sources.noise())
            case "fgsm":
                for epsilon in epsilons:
                    yield from self._rank_against(task, epsilon, self.sources.attacked(epsilon))
            case _:
                raise DsuiError(f"no task {excerpt(task)}; choose from {', '.join(TASKS)}.")

    def misclassification(self) -> Iterator[ResultRow]:
        """Accuracy and calibration of each stream, then every score against the predicting stream's errors."""
        stored, scores = self._in_domain
        for stream, part in STREAMS.items():
            if (values := stored.part(part)) is not None:
                yield self._accuracy("accuracy", None, stream, values, stored)
        labels, logits = stored.part("labels"), stored.part("logits")
        assert labels is not None
        assert logits is not None
        errors = (logits.argmax(1) != labels).to(self._device)
        accepted = acceptance(self._thresholds, scores, errors)
        for name, values in scores.items():
            metrics = ranking_metrics(values, errors) | selective_metrics(values, errors)
            metrics |= accepted if name == "uncertainty" else {}
            yield self._row("misclassification", None, name, metrics, errors, stored)

    def outputs(self, source: ImageSource) -> StoredOutputs:
        """The outputs of a set's images, from the cache or by a forward pass."""
        return self.cache.get(source, self.progress)

    def scores(self, source: ImageSource) -> tuple[StoredOutputs, Scores]:
        """The outputs of a set's images, and every score of them, [N] each."""
        stored = self.outputs(source)
        parts = [self._chunk_scores(chunk.to(self._device)) for chunk in stored.chunks(features=bool(self._unfitted))]
        scores = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if self._odin is not None:
            odin, moments = self._odin
            own, joint = detector_scores("odin")
            perturbed = self.outputs(self.sources.perturbed(source, odin))
            scores[own] = torch.cat([odin.score(chunk.to(self._device)) for chunk in perturbed.chunks()])
            logits = torch.cat([chunk.logits for chunk in stored.chunks(features=False)])
            scores[joint] = sirc(logits.to(self._device), scores[own], *moments)
        return stored, scores

    @cached_property
    def _in_domain(self) -> tuple[StoredOutputs, Scores]:
        """The in-domain images, which every task compares with."""
        found = self.scores(self.sources.own())
        self._warn_of_absent_classes(found[0])
        return found

    def _rank_against(self, task: str, foreign: str | float, source: ImageSource) -> Iterator[ResultRow]:
        _, in_domain = self._in_domain
        stored, scores = self.scores(source)
        if task == "ood":
            self._warn_of_overlap(source.name, stored)
        if task == "fgsm" and (logits := stored.part("logits")) is not None:
            yield self._accuracy(task, foreign, "prediction", logits, stored)
        joined = {name: torch.cat([values, scores[name]]) for name, values in in_domain.items()}
        count, whole = (len(each["uncertainty"]) for each in (in_domain, joined))
        positive = torch.arange(whole, device=joined["uncertainty"].device) >= count
        accepted = acceptance(self._thresholds, joined, positive)
        for name, values in joined.items():
            metrics = ranking_metrics(values, positive) | (accepted if name == "uncertainty" else {})
            yield self._row(task, foreign, name, metrics, positive, stored)

    def _accuracy(
        self, task: str, foreign: str | float | None, stream: str, values: Tensor, stored: StoredOutputs
    ) -> ResultRow:
        """Accuracy and calibration of a stream on a set with labels, from its logits or class scores [N, C]."""
        labels = stored.part("labels")
        assert labels is not None
        temperature = self._temperature if stream == "prediction" else None
        metrics = calibration_metrics(values, labels) | stated_metrics(values, labels, temperature)
        return self._row(task, foreign, stream, metrics, None, stored)

    def _chunk_scores(self, outputs: Outputs) -> Scores:
        scores = all_scores(outputs, self._reference)
        for fitted in self._detectors.values():
            scores |= fitted.scores(outputs, scores)
        return scores

    def _compute_ahead(self, sources: Sequence[ImageSource]) -> None:
        """Compute the outputs that are not stored yet, while further images are read."""
        for source in self.cache.read_ahead(sources):
            self.outputs(source)

    @cached_property
    def _training(self) -> StoredOutputs:
        return self.outputs(self.sources.training())

    @cached_property
    def _reference(self) -> Reference:
        return reference(self._training.chunks(features=False))

    @cached_property
    def _detectors(self) -> dict[str, FittedDetector]:
        """The fitted detectors, with the moments of their scores over training images."""
        if not self._unfitted:
            return {}
        return fit_detectors(self._unfitted, self._training, self.cache.facts.config.method, self._device, self.warn)

    @cached_property
    def _odin(self) -> tuple[Odin, Moments] | None:
        """ODIN with the moments of its score over training images; None where it is not chosen or left out."""
        odin = self._perturbing
        if odin is None:
            return None
        if self.cache.facts.config.on_features:
            self.warn("odin changes pixels, and this run was trained on features, so it is left out.")
            return None
        if next(self._training.chunks(features=False)).samples is not None:
            method = self.cache.facts.config.method
            self.warn(f"{method} has several passes for each image and no single gradient, so odin is left out.")
            return None
        chosen = choose_fit_images(self._training.count)
        sample = self.sources.perturbed(self.sources.training(), odin, chosen[moment_images(len(chosen))])
        try:
            return odin, Moments.of(odin.score(self.outputs(sample).whole()))
        except ValueError as error:
            self.warn(f"odin is left out: {error}")
            return None

    def _warn_of_absent_classes(self, stored: StoredOutputs) -> None:
        labels = stored.part("labels")
        assert labels is not None
        seen = set(labels.unique().tolist())
        if absent := [name for label, name in enumerate(self.cache.facts.classes) if label not in seen]:
            named = f"{', '.join(absent[:MOST_NAMED])}{' and others' * (len(absent) > MOST_NAMED)}"
            self.warn(f"no evaluated image is of the class {named}, so the figures say nothing about it.")

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
    def _thresholds(self) -> Thresholds | None:
        return usable_thresholds(self.cache.facts, self.warn)

    @cached_property
    def _temperature(self) -> float | None:
        """Of the predicted probabilities; None on held-out images, to which it was fitted."""
        return stored_temperature(self.cache.facts) if self.sources.part == "test" else None

    @cached_property
    def _recipe(self) -> str:
        """How the run was trained; on the test images also the share of the training images it held out, if that is not
        the usual one. Rows of the held-out images themselves have another protocol instead."""
        facts = self.cache.facts
        config = facts.config
        fewer = self.sources.part == "test" and config.held_out != usual_share(config.data)
        return facts.training + (f", calibration={config.held_out:g}" if fewer else "")

    @cached_property
    def _commit(self) -> str | None:
        return commit()
