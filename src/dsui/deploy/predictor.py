"""A trained run in three lines of Python.

    predictor = Predictor.load("runs/mine")
    predictor.threshold(coverage=0.95)
    prediction = predictor.predict(["a.jpg", "b.png"])        # .label, .uncertainty, .abnormal, .reason, ...

Thresholds are those that the run keeps, until others are chosen by the calibration that training stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from dsui.backbones.own import as_backbone
from dsui.backbones.registry import OWN, own_backbone
from dsui.checks import check_at_least
from dsui.data.decode import ImageError
from dsui.deploy.inputs import as_array, from_arrays, from_features
from dsui.deploy.prediction import prediction_of
from dsui.deploy.score_choice import ScoreChoice
from dsui.deploy.scorer import Scorer, prepare
from dsui.deploy.sources import CHANNELS
from dsui.detectors.fitted import FittedDetector
from dsui.device import choose_device
from dsui.errors import DataError, DsuiError
from dsui.hub import fetch, is_hub_name
from dsui.limits import Criterion
from dsui.prediction import Prediction
from dsui.runs.acceptance import Thresholds
from dsui.runs.backbones import preparation_of
from dsui.runs.calibration import Calibration, stored_calibration
from dsui.runs.embedding import Embedder, embedder_of
from dsui.runs.model import Model, forward, load_model, run_facts
from dsui.runs.saved_thresholds import save_thresholds, saved_tensors, saved_thresholds, unusable
from dsui.runtime.inputs import ImageForm, check_size, map_ahead, pixels_of

BATCH = 128


class Predictor:
    """`classes` [C] are the names of the labels; `chosen` are the thresholds in use, None where there are none."""

    def __init__(self, model: Model, calibration: Calibration, classes: NDArray[Any] | None = None) -> None:
        self.model, self.calibration = model, calibration
        self.classes = np.array(model.facts.classes) if classes is None else classes
        self.scorer = Scorer(calibration.reference)
        self.chosen: Thresholds | None = None

    @classmethod
    def load(
        cls, path: Path | str, device: torch.device | str = "auto", backbone: nn.Module | None = None
    ) -> Predictor:
        """The run in the folder `path`, or a model of the hub, hf:USER/NAME or hf:USER/NAME@REVISION (`dsui.hub`);
        `backbone` is the module it was trained on, where that is the user's."""
        facts = run_facts(fetch(str(path)) if is_hub_name(path) else Path(path))
        if backbone is not None and not facts.config.backbone.startswith(OWN):
            raise ValueError(
                f"{path} was trained on {facts.config.backbone}, which dsui builds; leave out the backbone."
            )
        calibration = stored_calibration(facts)
        shape = (facts.config.channels, facts.config.size, facts.config.size)
        with nullcontext() if backbone is None else own_backbone(as_backbone(backbone, shape), type(backbone).__name__):
            predictor = cls(load_model(facts, choose_device(device)), calibration)
            predictor._take_saved()
        return predictor

    def threshold(
        self,
        coverage: float | None = None,
        risk: float | None = None,
        *,
        score: str | None = None,
        foreign_score: str | None = None,
        two: bool = False,
        detector: str | None = None,
    ) -> Thresholds:
        """Choose by coverage or by risk which images are `abnormal`, in place of thresholds that the run keeps.

        `dsui.runs.threshold` says what each guarantees, and `dsui.deploy.score_choice` which scores the other arguments
        choose. Detectors, variants of scores, and older runs need the images that the run was trained on.
        """
        asked = Criterion(coverage, risk)
        asked.check()
        choice = ScoreChoice(score, foreign_score, two, detector)
        chooser = prepare(self.model.facts, self.calibration, choice, self.model.device)
        self.chosen, self.scorer = chooser.choose(asked), chooser.scorer
        return self.chosen

    def save_threshold(self) -> Path:
        """Keep the chosen thresholds in the folder of the run, as `dsui threshold --save` does; returns the file."""
        if self.chosen is None:
            raise DsuiError("no threshold is chosen; call threshold(coverage=0.95) first.")
        facts = self.model.facts
        return save_thresholds(facts.path, self.chosen, facts.fingerprint(), self.scorer.tensors())

    def _take_saved(self) -> None:
        """Use the thresholds that the run keeps, if there are any."""
        run = self.model.facts.path
        self.chosen = saved_thresholds(run)
        if self.chosen is None:
            return
        config, device = self.model.facts.config, self.model.device
        try:
            if self.chosen.detector is not None:
                fitted = FittedDetector.of(self.chosen.detector, saved_tensors(run), device)
                self.scorer = self.scorer._replace(detector=fitted, device=device)
            kind = torch.float32 if config.on_features else torch.uint8
            self._predict_batch(torch.zeros((1, config.channels, config.size, config.size), dtype=kind))
        except (KeyError, ValueError, RuntimeError, DsuiError) as error:
            raise unusable(run, error) from error

    def __call__(self, images: Any, batch: int = BATCH) -> Prediction:
        return self.predict(images, batch)

    def predict(self, images: Any, batch: int = BATCH) -> Prediction:
        """Predict one file or Pillow image, a list of them, or an array or tensor of images (see
        `dsui.runtime.inputs`); for a run on features an array or tensor of features [N, M].

        A file that cannot be read is an error that names it; `dsui.deploy.rows` passes over such files.
        """
        check_at_least("batch", batch, 1)
        parts = [self._predict_batch(pixels) for pixels in self._batches(images, batch)]
        if not parts:
            raise ValueError("there are no images; give at least one.")
        return Prediction.concatenated(parts)

    def _predict_batch(self, pixels: Tensor) -> Prediction:
        model = self.model
        outputs = forward(model.method, model.transform, pixels.to(model.device))
        return prediction_of(outputs, self.classes, self.scorer, self.chosen, self.calibration.temperature)

    def _batches(self, images: Any, batch: int) -> Iterator[Tensor]:
        config = self.model.facts.config
        if isinstance(images, np.ndarray | Tensor):
            if config.on_features and images.ndim < 3:
                yield from from_features(images, config.channels).split(batch)
                return
            form = self.form
            pixels = from_arrays(images, form.channels)
            check_size(tuple(pixels.shape), form.size)
            yield from map(self._inputs, pixels.split(batch))
            return
        several: Iterable[Any] = [images] if isinstance(images, str | Path | Image.Image) else images
        decoded = map_ahead(several, self._read, 2 * batch)
        while pixels_of_batch := list(islice(decoded, batch)):
            yield self._inputs(torch.from_numpy(np.stack(pixels_of_batch)))

    @cached_property
    def form(self) -> ImageForm:
        """How the model wants its images. A run on features takes them where it knows the network that made these."""
        facts = self.model.facts
        if not facts.config.on_features:
            return ImageForm(facts.config.channels, facts.config.size, preparation_of(facts.config))
        found = self._known_embedder.preparation
        return ImageForm(CHANNELS, found.size, found)

    @property
    def embedder(self) -> Embedder | None:
        """What makes the features of a run on features from images; None for a run on images."""
        return self._known_embedder if self.model.facts.config.on_features else None

    @cached_property
    def _known_embedder(self) -> Embedder:
        return embedder_of(self.model.facts, self.model.device)

    def _inputs(self, pixels: Tensor) -> Tensor:
        """The pixels themselves, or their features for a run on features."""
        return self._known_embedder(pixels)[:, :, None, None] if self.model.facts.config.on_features else pixels

    def _read(self, image: Any) -> NDArray[np.uint8]:
        form = self.form
        try:
            return pixels_of(as_array(image), form)
        except ImageError as error:
            name = image if isinstance(image, str | Path) else "an image"
            raise DataError(f"{name} cannot be used ({error}); repair it or leave it out.") from error
