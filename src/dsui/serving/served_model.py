"""One loaded file model.onnx: its session, its batches, and its scale of scores."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsui.data.decode import stored_size
from dsui.errors import DsuiError
from dsui.regular_file import read_regular
from dsui.runtime import ImageError, OnnxPredictor, Prediction
from dsui.serving.batching import Batcher
from dsui.serving.logs import write_event
from dsui.serving.pixel_budget import PixelBudget
from dsui.serving.scale import Scale
from dsui.serving.settings import ServerSettings

LARGEST = 1 << 31
"""Bytes of a model; protobuf holds no more."""
VERSION = 12
"""Digits of the hash that names a version."""


class ServedModel:
    """Loading it runs it once, so that a file which only looks like a model is refused before it is used."""

    def __init__(
        self,
        name: str,
        file: Path,
        settings: ServerSettings,
        after: Callable[[ServedModel, Prediction, int, float], None],
    ) -> None:
        try:
            self.version = hashlib.sha256(read_regular(file, LARGEST)).hexdigest()[:VERSION]
        except OSError as error:
            raise DsuiError(f"{file} cannot be read ({error.strerror}); name a file of `dsui export`.") from error
        self.name = name
        self.predictor = OnnxPredictor(file, threads=settings.threads)
        self.facts = self.predictor.facts
        self.loaded = time.time()
        calibration = self.facts.calibration
        quantiles: dict[str, tuple[float, ...]] = {}
        if calibration is not None:
            quantiles["uncertainty"] = calibration.uncertainty
            if calibration.foreignness is not None:
                quantiles["foreignness"] = calibration.foreignness
        self.scale = Scale(quantiles)
        self.predict(self._blank())
        self.batcher: Batcher[Prediction] = Batcher(
            self.predict,
            settings.batch,
            settings.wait,
            settings.queue,
            lambda prediction, images, seconds: after(self, prediction, images, seconds),
        )

    @property
    def takes_images(self) -> bool:
        return self.facts.input == "images"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one image, [size, size, C], or of one row of features, [M]."""
        size, channels = self.facts.size, self.facts.channels
        return (channels,) if size is None else (size, size, channels)

    def input_tensor(self, rows: int) -> dict[str, Any]:
        """As the Open Inference Protocol describes it; -1 rows are any number of them."""
        kind = "UINT8" if self.takes_images else "FP32"
        return {"name": self.facts.input, "datatype": kind, "shape": [rows, *self.input_shape]}

    def predict(self, inputs: NDArray[Any]) -> Prediction:
        """Of images [N, H, W, C] or features [N, M]."""
        if self.takes_images:
            return self.predictor.predict_prepared(inputs)
        return self.predictor.predict(inputs, len(inputs))

    def prepare(self, content: bytes, budget: PixelBudget) -> NDArray[np.uint8] | ImageError:
        """[size, size, C] of the bytes of an image file, or what is wrong with them."""
        try:
            width, height = stored_size(content)
            if width * height > budget.most:
                return ImageError(f"its header announces {width} x {height} pixels, more than {budget.most:,}")
            with budget.taking(width * height):
                return self.predictor.prepare(content)
        except ImageError as error:
            return error

    def class_indices(self, prediction: Prediction) -> NDArray[np.int64]:
        """[N]: the places of the labels among the classes."""
        places = {label: place for place, label in enumerate(self.predictor.classes)}
        return np.array([places[str(label)] for label in prediction.label], dtype=np.int64)

    def _blank(self) -> NDArray[Any]:
        return np.zeros((1, *self.input_shape), dtype=np.uint8 if self.takes_images else np.float32)

    async def retire(self) -> None:
        """Answer what was let in, and end."""
        await self.batcher.close()
        write_event(logging.INFO, "model retired", model=self.name, version=self.version)
