"""A classifier that knows when it should not be trusted, with the interface of scikit-learn.

    classifier = UncertaintyClassifier("resnet18", method="dsui", recipe="modern").fit(images, labels)
    classifier.threshold(coverage=0.95)
    prediction = classifier.predict(new_images)          # .label, .uncertainty, .abnormal, ...

It trains what `dsui train` trains, bit for bit at the same settings, and saves what `dsui predict` reads.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dsui import __version__
from dsui.backbones.own import as_backbone
from dsui.backbones.registry import own_backbone
from dsui.backbones.spec import is_spec
from dsui.deploy.labelled import count_classes, labelled, training_set, weighted
from dsui.deploy.predictor import Predictor
from dsui.deploy.sources import CHANNELS
from dsui.device import choose_device
from dsui.errors import RunError
from dsui.excerpt import excerpt
from dsui.prediction import Prediction
from dsui.python_words import in_python, spoken_in_python
from dsui.recipe import Recipe
from dsui.runs import turns
from dsui.runs.acceptance import Thresholds
from dsui.runs.backbones import preparation_of
from dsui.runs.calibration import CALIBRATION
from dsui.runs.config import RunConfig
from dsui.runs.folder import WEIGHTS, RunFolder
from dsui.runs.images import held_out_images, training_images, training_part
from dsui.runs.model import fingerprint
from dsui.runs.recipe_file import changed, load_recipe, method_options
from dsui.runs.saved_thresholds import save_thresholds
from dsui.runs.start import Start, started
from dsui.runs.weights import read_metadata
from dsui.runtime.inputs import check_size
from dsui.training.distributed import World
from dsui.training.loop import InterruptedRun, fit
from dsui.training.reporter import ACCURACY, HELD_OUT_ACCURACY, HELD_OUT_LOSS, WARNING

LABELS = "labels"
"""Key in the metadata of the weights: the classes as the user called them, which may be numbers."""


class UncertaintyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Images are arrays or tensors, uint8 or floats in [0, 1], [N, H, W], [N, H, W, C] or [N, C, H, W]; or a folder
    with train/CLASS and test/CLASS; or a DataLoader, which is read once into memory.

    `backbone`: small, resnet18, vgg16, a network of another library, as in "hf:NAME" (`dsui.backbones.spec`), or the
    user's own module (`dsui.backbones.own`), which is copied. `weights` is a safetensors file for one of another
    library. `settings` are those of `--set`, as {"balance": "logits", "patience": 10}. `calibration` is the share of
    the images set aside for thresholds. `size` and `channels` say how the images of a folder are read, by default at 32
    pixels or as the named network wants them; `skip_bad` leaves out the unreadable ones.
    """

    def __init__(
        self,
        backbone: str | nn.Module = "resnet18",
        num_classes: int | None = None,
        method: str = "dsui",
        recipe: str | Recipe = "paper",
        settings: Mapping[str, object] | None = None,
        seed: int = 0,
        calibration: float = 0.1,
        size: int | None = None,
        channels: int = 3,
        skip_bad: bool = False,
        device: str = "auto",
        verbose: bool = False,
        weights: Path | str | None = None,
    ) -> None:
        self.backbone, self.num_classes, self.method, self.recipe = backbone, num_classes, method, recipe
        self.settings, self.seed, self.calibration = settings, seed, calibration
        self.size, self.channels, self.skip_bad = size, channels, skip_bad
        self.device, self.verbose, self.weights = device, verbose, weights

    def __sklearn_tags__(self) -> Tags:
        """Images are no tables, so scikit-learn shall not hand it any."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    @spoken_in_python()
    def fit(self, images: Any, labels: Any = None, epochs: int | None = None, sample_weight: Any = None) -> Self:
        """Train; `epochs` here or in `settings` replaces the recipe's.

        `sample_weight` [N] is how often an epoch meets each image: a weight of 2 is the image twice, exactly where all
        weights are whole and on the mean where not, and a weight of 0 is no image. So larger weights make epochs
        longer. An image that is held out to calibrate counts once whatever its weight.
        """
        own = None if isinstance(self.backbone, str) else self.backbone
        device = choose_device(self.device)
        with ExitStack() as closing:
            name = self.backbone
            file = None if self.weights is None else Path(self.weights)
            backbone = type(own).__name__ if own else str(name)
            count = count_classes(images, labels) if is_spec(backbone) else None
            start = closing.enter_context(started(backbone, file, self.size, classes=count))
            channels = self.channels if isinstance(images, str | Path) else CHANNELS if start.preparation else None
            side = start.side(self.size)
            found = labelled(images, labels, "train", side, channels, self.skip_bad, start.preparation)
            if start.preparation is not None and isinstance(found.images, Tensor):
                check_size(tuple(found.images.shape), side)
            found, weights = weighted(found, sample_weight)
            whole, classes = training_set(found, self.num_classes)
            if own is not None:
                network = as_backbone(own, whole.shape, len(classes))
                name = closing.enter_context(own_backbone(network, type(own).__name__))
            config = self._config(whole.name, str(name), whole.shape, epochs, start)
            held_out = None if config.held_out == 0 else held_out_images(config, whole)
            run = Path(closing.enter_context(TemporaryDirectory())) / "run"
            try:
                chosen = training_images(config, whole)
                lines = _Lines(self.verbose, config.recipe.epochs)
                own_weights = None if weights is None else weights[training_part(config, whole)]
                fit(config, chosen, run, device, World(), lines, held_out=held_out, sample_weight=own_weights)
            except InterruptedRun as error:
                raise KeyboardInterrupt from error
            self._adopt(Predictor.load(run, device, own), classes)
        if (sentence := turns.advice(self.predictor_.calibration.turns)) is not None:
            warnings.warn(in_python(sentence), stacklevel=2)
        return self

    def predict(self, images: Any) -> Prediction:
        """As `Predictor.predict`; scikit-learn reads the result as an array of labels."""
        check_is_fitted(self, "predictor_")
        if isinstance(images, DataLoader):
            images = labelled(images, None, "test", 1, None).images
        return self.predictor_.predict(images)

    def predict_proba(self, images: Any) -> NDArray[np.float64]:
        """[N, C], classes in the order of `classes_`."""
        return self.predict(images).probabilities

    def score(self, images: Any, labels: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; for a folder on its test split. `sample_weight` [N] is the weight of each image."""
        check_is_fitted(self, "predictor_")
        config = self.predictor_.model.facts.config
        shape = config.size, config.channels
        data = labelled(images, labels, "test", *shape, config.skip_bad, preparation_of(config))
        if not np.isin(data.labels, self.classes_).any():
            raise ValueError(
                f"none of the labels is a class of this model, {excerpt(data.labels[0])} for instance; "
                f"it knows {', '.join(map(excerpt, self.classes_[:5].tolist()))}."
            )
        found = np.concatenate([self.predict(block).label for block in data.blocks()])
        return float(np.average(found == data.labels, weights=sample_weight))

    @spoken_in_python()
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
        """Choose which predictions are `abnormal`; see `Predictor.threshold`. `save` keeps the choice."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.threshold(
            coverage, risk, score=score, foreign_score=foreign_score, two=two, detector=detector
        )

    def save(self, path: Path | str) -> None:
        """Write a folder as `dsui train` does, without the checkpoint and with the thresholds in use; `dsui predict`
        reads it."""
        check_is_fitted(self, "predictor_")
        path, model = Path(path), self.predictor_.model
        if (path / WEIGHTS).exists():
            raise RunError(f"{path} already holds a model; choose another folder or remove it.")
        metadata = {
            "version": __version__,
            "classes": json.dumps(model.facts.classes),
            CALIBRATION: self.predictor_.calibration.to_text(),
            LABELS: json.dumps(self.classes_.tolist()),
        }
        with RunFolder.create(path, model.facts.config) as folder:
            folder.save_weights(model.method.state_dict(), metadata)
            if self.predictor_.chosen is not None:
                tensors = self.predictor_.scorer.tensors()
                save_thresholds(path, self.predictor_.chosen, fingerprint(path), tensors)

    @classmethod
    def load(cls, path: Path | str, backbone: nn.Module | None = None, device: str = "auto") -> Self:
        """Read what `save` or `dsui train` wrote; `backbone` is needed where it was the user's own module."""
        predictor = Predictor.load(path, device, backbone)
        config = predictor.model.facts.config
        names = read_metadata(Path(path) / WEIGHTS).get(LABELS)
        classes = predictor.classes if names is None else np.array(json.loads(names))
        loaded = cls(
            backbone=config.backbone if backbone is None else backbone,
            num_classes=len(classes),
            method=config.method,
            recipe=config.recipe,
            settings=dict(config.options) or None,
            seed=config.seed,
            calibration=config.held_out,
            size=config.size,
            channels=config.channels,
            skip_bad=config.skip_bad,
            device=device,
        )
        loaded._adopt(predictor, classes)
        return loaded

    def _config(
        self, data: str, backbone: str, shape: tuple[int, int, int], epochs: int | None, start: Start
    ) -> RunConfig:
        settings = dict(self.settings or {}) | ({} if epochs is None else {"epochs": epochs})
        overrides, options = method_options(self.method, {name: _plain(value) for name, value in settings.items()})
        if isinstance(self.recipe, Recipe):
            recipe = changed(self.recipe, data, overrides)
        else:
            recipe = load_recipe(self.recipe, data, overrides)
        seed, share = _plain(self.seed), _plain(self.calibration)
        return RunConfig(
            data=data,
            backbone=backbone,
            method=self.method,
            seed=seed,
            size=shape[1],
            channels=shape[0],
            recipe=start.recipe(recipe, data),
            options=options,
            held_out=share,
            skip_bad=_plain(self.skip_bad),
            preparation=start.facts,
        )

    def _adopt(self, predictor: Predictor, classes: NDArray[Any]) -> None:
        predictor.classes = classes
        config = predictor.model.facts.config
        self.predictor_, self.classes_ = predictor, classes
        self.n_features_in_ = config.channels * config.size**2


def _plain(value: Any) -> Any:
    """A NumPy number, which a grid search over an array gives, as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


class _Lines:
    """A line for each of `epochs`, counted from 1 as `dsui train` does; without `verbose` nothing but warnings."""

    def __init__(self, verbose: bool, epochs: int) -> None:
        self.verbose, self.epochs = verbose, epochs

    def preparing(self, what: str, done: int, total: int | None) -> None: ...

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None: ...

    def epoch(self, row: dict[str, object]) -> None:
        epoch = row["epoch"]
        assert isinstance(epoch, int)
        shown = ("loss", ACCURACY, HELD_OUT_ACCURACY, HELD_OUT_LOSS, "seconds")
        figures = ", ".join(f"{name.replace('_', ' ')} {row[name]:.4g}" for name in shown if name in row)
        self._print(f"epoch {epoch + 1}/{self.epochs}: {figures}")
        if WARNING in row:
            warnings.warn(in_python(str(row[WARNING])), stacklevel=2)

    def note(self, sentence: str) -> None: ...

    def stopping(self) -> None:
        self._print("finishing this step; a second Ctrl-C stops at once.")

    def _print(self, line: str) -> None:
        if self.verbose:
            print(line, file=sys.stderr)
