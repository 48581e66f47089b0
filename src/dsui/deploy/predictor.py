"""A trained run in three lines of Python.

    predictor = Predictor.load("runs/mine")
    predictor.threshold(coverage=0.95)
    prediction = predictor.predict(["a.jpg", "b.png"])        # .label, .uncertainty, .abnormal, ...

Thresholds are chosen by the calibration that training stored beside the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from dsui.backbones.own import as_backbone
from dsui.backbones.preparation import Preparation
from dsui.backbones.registry import OWN, own_backbone
from dsui.checks import check_at_least
from dsui.data.decode import ImageError
from dsui.deploy.embedding import Embedder, Embedding
from dsui.deploy.inputs import check_size, from_any, from_arrays, from_features, map_ahead
from dsui.deploy.prediction import Prediction
from dsui.deploy.sources import CHANNELS
from dsui.device import choose_device
from dsui.errors import DataError, DsuiError, RunError
from dsui.runs.backbones import preparation_of
from dsui.runs.calibration import Calibration, stored_calibration
from dsui.runs.model import Model, forward, load_model, run_facts
from dsui.runs.threshold import Threshold

BATCH = 128


class ImageForm(NamedTuple):
    """What images a model takes, and how they are made of photographs."""

    channels: int
    size: int
    preparation: Preparation | None


class Predictor:
    """`classes` [C] are the names of the labels; `chosen` is the threshold in use, None where there is none."""

    def __init__(self, model: Model, calibration: Calibration, classes: NDArray[Any] | None = None) -> None:
        self.model, self.calibration = model, calibration
        self.classes = np.array(model.facts.classes) if classes is None else classes
        self.chosen: Threshold | None = None

    @classmethod
    def load(
        cls, path: Path | str, device: torch.device | str = "auto", backbone: nn.Module | None = None
    ) -> Predictor:
        """The run in the folder `path`; `backbone` is the module it was trained on, where that is the user's."""
        facts = run_facts(Path(path))
        if backbone is not None and not facts.config.backbone.startswith(OWN):
            raise ValueError(
                f"{path} was trained on {facts.config.backbone}, which dsui builds; leave out the backbone."
            )
        calibration = stored_calibration(facts)
        shape = (facts.config.channels, facts.config.size, facts.config.size)
        with nullcontext() if backbone is None else own_backbone(as_backbone(backbone, shape), type(backbone).__name__):
            return cls(load_model(facts, choose_device(device)), calibration)

    def threshold(self, coverage: float | None = None, risk: float | None = None) -> Threshold:
        """Choose the uncertainty above which an image is `abnormal`, by coverage or by risk; `dsui.runs.threshold` says
        what each guarantees."""
        self.chosen = self.calibration.threshold(coverage, risk)
        return self.chosen

    def __call__(self, images: Any, batch: int = BATCH) -> Prediction:
        return self.predict(images, batch)

    def predict(self, images: Any, batch: int = BATCH) -> Prediction:
        """Predict one file or Pillow image, a list of them, or an array or tensor of images (see `dsui.deploy.inputs`);
        for a run on features an array or tensor of features [N, M].

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
        return Prediction.of(outputs, self.classes, self.calibration.reference, self.chosen)

    def _batches(self, images: Any, batch: int) -> Iterator[Tensor]:
        config = self.model.facts.config
        if isinstance(images, np.ndarray | Tensor):
            if config.on_features and images.ndim < 3:
                yield from from_features(images, config.channels).split(batch)
                return
            form = self.form
            pixels = from_arrays(images, form.channels)
            check_size(pixels, form.size)
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
        found = self._embedder.preparation
        return ImageForm(CHANNELS, found.size, found)

    @cached_property
    def _embedder(self) -> Embedder:
        facts = self.model.facts
        if facts.embedding is None:
            raise DsuiError(
                f"{facts.path} was trained on features, and its file did not say which network made them; predict files "
                "of features, or train on one that `dsui embed` wrote."
            )
        try:
            embedding = Embedding.from_text(facts.embedding)
        except ValueError as error:
            raise RunError(
                f"{facts.path} does not say rightly what made its features ({error}); train again."
            ) from error
        return Embedder(embedding.load(), self.model.device)

    def _inputs(self, pixels: Tensor) -> Tensor:
        """The pixels themselves, or their features for a run on features."""
        return self._embedder(pixels)[:, :, None, None] if self.model.facts.config.on_features else pixels

    def _read(self, image: Any) -> NDArray[np.uint8]:
        form = self.form
        try:
            return from_any(image, form.channels, form.size, form.preparation)
        except ImageError as error:
            name = image if isinstance(image, str | Path) else "an image"
            raise DataError(f"{name} cannot be used ({error}); repair it or leave it out.") from error
