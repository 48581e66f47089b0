"""A file of `dsui export` in three lines of Python, without PyTorch.

    predictor = OnnxPredictor("model.onnx")
    prediction = predictor.predict(["a.jpg", "b.png"])        # .label, .uncertainty, .abnormal, .reason, ...

It gives what `dsui.deploy.predictor` gives for the run, with the thresholds that are in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsui.data.decode import ImageError
from dsui.errors import DataError, ModelError
from dsui.limits import reasons
from dsui.prediction import Prediction
from dsui.runtime.facts import ModelFacts, ThresholdFacts
from dsui.runtime.inputs import ImageForm, check_size, checked_features, map_ahead, pixels_of, pixels_of_arrays
from dsui.runtime.session import Session

BATCH = 128


class OnnxPredictor:
    """`classes` are the names of the labels. Threads may share one predictor."""

    def __init__(self, path: Path | str, threads: int | None = None) -> None:
        """`threads` are those of ONNX Runtime; None: one for each processor."""
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}.")
        self.path = Path(path)
        self._session = Session(self.path, threads)
        self._names = np.array(self.classes)

    @property
    def facts(self) -> ModelFacts:
        """What the file says of itself."""
        return self._session.facts

    @property
    def classes(self) -> tuple[str, ...]:
        return self.facts.classes

    @property
    def thresholds(self) -> ThresholdFacts | None:
        """Those in the graph, which cannot be changed here; None where there are none."""
        return self.facts.thresholds

    @property
    def form(self) -> ImageForm:
        """How the model wants its images; a ModelError for one that takes features."""
        facts = self.facts
        if facts.size is None:
            raise ModelError(f"{self.path} takes features and no images; give an array [rows, {facts.channels}].")
        return ImageForm(facts.channels, facts.size, facts.preparation)

    def predict(self, images: Any, batch: int = BATCH) -> Prediction:
        """Predict one file or Pillow image, a list of them, or an array of images (see `dsui.runtime.inputs`); for a
        model that takes features an array of features [N, M].

        A file that cannot be read is an error that names it; `dsui.runtime.rows` passes over such files.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}.")
        parts = [self._predict(inputs) for inputs in self._batches(images, batch)]
        if not parts:
            raise ValueError("there are no images; give at least one.")
        return Prediction.concatenated(parts)

    def predict_prepared(self, images: NDArray[np.uint8]) -> Prediction:
        """Predict images that `prepare` made, uint8 [N, size, size, channels], in one batch."""
        form = self.form
        wanted = (form.size, form.size, form.channels)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != wanted or len(images) == 0:
            raise ValueError(
                f"prepared images are uint8 [N, {form.size}, {form.size}, {form.channels}], and these are "
                f"{images.dtype} {list(images.shape)}."
            )
        return self._predict(images)

    def prepare(self, image: Any) -> NDArray[np.uint8]:
        """[size, size, channels] of a file, its bytes, a Pillow image or an array; an ImageError where a file is no
        image, with a clause that says why."""
        return pixels_of(image, self.form).transpose(1, 2, 0)

    def _batches(self, images: Any, batch: int) -> Iterator[NDArray[Any]]:
        facts, alone = self.facts, isinstance(images, str | Path | bytes | Image.Image)
        if not alone and hasattr(images, "__array__"):
            if facts.input == "features":
                yield from _split(checked_features(images, facts.channels), batch)
                return
            pixels = pixels_of_arrays(images, self.form.channels)
            check_size(pixels.shape, self.form.size)
            yield from _split(pixels.transpose(0, 2, 3, 1), batch)
            return
        several: Iterable[Any] = [images] if alone else images
        decoded = map_ahead(several, self._read, 2 * batch)
        while found := list(islice(decoded, batch)):
            yield np.stack(found)

    def _read(self, image: Any) -> NDArray[np.uint8]:
        try:
            return self.prepare(image)
        except ImageError as error:
            name = image if isinstance(image, str | Path) else "an image"
            raise DataError(f"{name} cannot be used ({error}); repair it or leave it out.") from error

    def _predict(self, inputs: NDArray[Any]) -> Prediction:
        outputs = self._session.run(inputs)
        doubles = {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype == np.float32}
        probabilities, scores = doubles["probabilities"], self._limited(doubles)
        rejected = None if self.thresholds is None else ~outputs["accepted"]
        return Prediction(
            label=self._names[outputs["label"]],
            probabilities=probabilities,
            max_probability=probabilities.max(1),
            entropy=_entropy(probabilities),
            log_density=doubles.get("log_density"),
            uncertainty=doubles["uncertainty"],
            abnormal=rejected,
            reason=None if rejected is None else self._reasons(scores, rejected),
            scores=scores,
            foreignness=doubles.get("foreignness"),
        )

    def _limited(self, outputs: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """The scores that the thresholds are of. The score `log_density` is minus the output, the density itself."""
        limits = () if self.thresholds is None else self.thresholds.limits
        return {
            each.score: -outputs[each.score] if each.score == "log_density" else outputs[each.score] for each in limits
        }

    def _reasons(self, scores: Mapping[str, NDArray[np.float64]], rejected: NDArray[np.bool_]) -> NDArray[Any]:
        """Why the graph rejects. It compares with more digits than it gives, so an image that it rejects may lie on the
        limits by what it gives; the reason is then the limit that it is nearest to."""
        assert self.thresholds is not None
        limits = self.thresholds.limits
        beyond = np.stack([scores[each.score] - each.value for each in limits], 1)  # [N, limits]
        rejecting = ~(beyond <= 0)
        unexplained = ~rejecting.any(1)
        rejecting[unexplained, beyond[unexplained].argmax(1)] = True
        rejecting &= rejected[:, None]
        return np.array(reasons(limits, rejecting.tolist()), dtype=str)


def _split(values: NDArray[Any], batch: int) -> Iterator[NDArray[Any]]:
    return (values[start : start + batch] for start in range(0, len(values), batch))


def _entropy(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """-sum_c p_c ln p_c, [N], with 0 ln 0 = 0."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    values: NDArray[np.float64] = -(probabilities * logs).sum(1)
    return values
