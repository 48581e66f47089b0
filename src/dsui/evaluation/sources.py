"""The images a run is evaluated on: its own, foreign ones, noise, and its own after an attack."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from dsui.data.dataset import ImageSet, MemorySet, Subset
from dsui.data.features import foreign_features, shuffled_features
from dsui.data.fgsm import fgsm
from dsui.data.folder import FolderSet
from dsui.data.foreign import DRAW_SEED, DRAWN_IMAGES, as_foreign, drawn_training_images, foreign_folder
from dsui.data.info import missing_folder
from dsui.data.noise import noise_set
from dsui.data.pseudo import pseudo_outliers
from dsui.data.registry import (
    DATASETS,
    FEATURES,
    FOLDER,
    PSEUDO,
    default_root,
    folder_path,
    foreign_split,
    load,
    own_path,
)
from dsui.data.splits import class_split, unknown_part
from dsui.data.stamp import stamp
from dsui.detectors.odin import Odin
from dsui.errors import DataError, DsuiError
from dsui.evaluation.cache import ImageSource
from dsui.evaluation.embedded import embedded
from dsui.progress import Progress, silent
from dsui.runs.backbones import preparation_of
from dsui.runs.config import RunConfig
from dsui.runs.embedding import Embedder
from dsui.runs.images import digest, held_out_images, known_images, read_split, training_images
from dsui.runs.model import Model

Part = Literal["test", "held-out"]
NOISE_IMAGES, NOISE_SEED = 10_000, 0


class ImageSources:
    """Where the images of one run's evaluation come from; nothing is read before it is needed.

    `skip_bad` leaves out unreadable files; a run that was trained with it does so in any case.
    `trained_on` is the digest of the images the run was trained on, by which held-out images are checked; None checks
    nothing. `embedder` gives the network behind a run on features, if the run knows it; `progress` is told of its work.
    """

    def __init__(
        self,
        config: RunConfig,
        classes: tuple[str, ...],
        part: Part = "test",
        root: Path | None = None,
        skip_bad: bool = False,
        trained_on: str | None = None,
        embedder: Callable[[], Embedder] | None = None,
        progress: Progress = silent,
    ) -> None:
        self.trained_on = trained_on
        self.config = replace(config, skip_bad=config.skip_bad or skip_bad)
        self.classes, self.part, self.root = classes, part, root
        self.embedder, self.progress = embedder, progress
        self._stamps: dict[tuple[str, str], str] = {}
        self._left_out: dict[str, int] = {}

    def training(self) -> ImageSource:
        return self._own("train", "train", lambda whole: training_images(self.config, whole))

    def whole_training(self) -> ImageSource:
        """The images that the run was trained on and those that it held out, in the order of the data set."""
        return self._own("train-whole", "train", self._whole)

    def own(self) -> ImageSource:
        """The in-domain images that are scored: the test split, or the images the run held out."""
        if self.part == "held-out":
            return self._own("held-out", "train", self._held_out)
        return self._own("test", "test", lambda whole: known_images(self.config, whole))

    def unknown(self) -> ImageSource:
        """The images of the classes the run was not trained on: of the test split, or of the training split beside
        held-out images, by which settings are chosen."""
        known = self.config.known
        if known is None:
            raise DsuiError("this run knows all classes of its data; for the open-set task, train with --known neal-0.")
        name, split = ("unknown-train", "train") if self.part == "held-out" else ("unknown", "test")
        return self._own(name, split, lambda whole: unknown_part(whole, class_split(known, whole)))

    def foreign(self, name: str) -> ImageSource:
        """The test split of another data set, images drawn from its training split (NAME@train) or any folder of
        images, brought to the shape of the run's images, or a kind of `PSEUDO` images made from the run's own."""
        if name in PSEUDO:
            self._check_images(f"{name} are made of images")
            own = self.own()
            return ImageSource(f"{own.name}-{name}", own.identity, lambda: pseudo_outliers(name, own.load()))
        base, split = foreign_split(name)
        if base.startswith(FEATURES) and not self.config.on_features:
            raise DataError(f"{base} are features, and this run was trained on images; name foreign images.")
        if self.config.on_features and not base.startswith(FEATURES) and self.embedder is None:
            raise DataError(
                f"{base} are images, and the file that this run was trained on did not say which network made its "
                "features; name features of the same network, as in --foreign features:FILE."
            )
        if base == self.config.data:
            raise DataError(f"{base} is the run's own data set; name another one as foreign.")
        drawn = f" {DRAWN_IMAGES} by seed {DRAW_SEED}" if split == "train" else ""
        return ImageSource(
            name,
            f"{self._stamp(base, split)}{drawn} {self._shape}{self._sifted}",
            lambda: as_foreign(self._load_foreign(name), self._empty()),
        )

    def noise(self) -> ImageSource:
        """Independent uniform pixels; for features the run's own training features, each drawn alone."""
        if self.config.on_features:
            training = self.training()
            return ImageSource("noise", f"{training.identity} {NOISE_IMAGES} {NOISE_SEED}", self._shuffled)
        identity = f"{NOISE_IMAGES} {NOISE_SEED} {self._shape}"
        return ImageSource("noise", identity, lambda: noise_set(self._empty(), NOISE_IMAGES, NOISE_SEED))

    def attacked(self, epsilon: float) -> ImageSource:
        """The in-domain images after one step of FGSM in pixel units, clipped; a step of 0 is no attack."""
        self._check_images("fgsm attacks pixels")
        own = self.own()
        if epsilon == 0:
            return own

        def attack(model: Model, images: Tensor, labels: Tensor) -> Tensor:
            recipe = self.config.recipe

            def log_probabilities(inputs: Tensor) -> Tensor:
                return model.method.predict(inputs).logits.log_softmax(1)

            return fgsm(log_probabilities, images, labels, epsilon, mean=recipe.mean, std=recipe.std)

        return own._replace(name=f"{own.name}-fgsm-{epsilon:g}", identity=f"{own.identity} {epsilon!r}", change=attack)

    def perturbed(self, source: ImageSource, odin: Odin, chosen: Tensor | None = None) -> ImageSource:
        """The images of a source after ODIN's step; `chosen` are the indices of some of them, by default all."""

        self._check_images("odin changes pixels")

        def change(model: Model, images: Tensor, labels: Tensor) -> Tensor:
            std = self.config.recipe.std
            return odin.perturb(
                model.method, source.inputs(model, images, labels), std * images.shape[1] if len(std) == 1 else std
            )

        def load() -> ImageSet:
            whole = source.load()
            return whole if chosen is None else Subset(whole, chosen, whole.name, whole.classes, whole.labels[chosen])

        identity = f"{source.identity} odin {odin.temperature!r} {odin.epsilon!r}"
        if chosen is not None:
            identity += f" {hashlib.sha256(chosen.numpy().tobytes()).hexdigest()}"
        return ImageSource(f"{source.name}-odin", identity, load, change, logits_only=True)

    def foreign_names(self) -> tuple[str, ...]:
        """The published sets whose files are present, without the run's own set and the embedded digits, which no
        colour model takes."""
        if self.config.on_features:
            return ()
        root = self.root or default_root()
        present = [name for name, entry in DATASETS.items() if "test" in entry.present(root)]
        return tuple(name for name in present if name not in {self.config.data, "digits", "digits-256"})

    def left_out_notes(self) -> list[str]:
        """A sentence on the unreadable files of each set that was read so far."""
        return [f"{n} unreadable file{'s' * (n > 1)} of {name} left out." for name, n in self._left_out.items()]

    def _held_out(self, whole: ImageSet) -> ImageSet:
        """From changed training images the same rule would hold out images that the run was trained on."""
        if self._changed(whole):
            raise DsuiError(
                f"the training images of {self.config.data} are not those of this run any more, so it is "
                "unknown which it held out; bring them back, or evaluate it on the test split."
            )
        return held_out_images(self.config, whole)

    def _whole(self, whole: ImageSet) -> ImageSet:
        if self._changed(whole):
            raise DsuiError(
                f"the training images of {self.config.data} are not those of this run any more; bring them back, or "
                "train again."
            )
        return known_images(self.config, whole)

    def _changed(self, whole: ImageSet) -> bool:
        return self.trained_on is not None and digest(training_images(self.config, whole)) != self.trained_on.split()[0]

    @property
    def split(self) -> str:
        """The definition of the in-domain images: the class split by name, and a hash of all that chooses them."""
        config = self.config
        facts = f"{config.data} {config.known} {config.held_out} {self.part} {self.classes}"
        return f"{config.known or 'all-classes'}:{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.config.channels, self.config.size, self.config.size

    @property
    def _sifted(self) -> str:
        """Kept outputs of readable files must not serve an evaluation in which unreadable files are an error."""
        return " without bad files" if self.config.skip_bad else ""

    def _own(self, name: str, split: str, choose: Callable[[ImageSet], ImageSet]) -> ImageSource:
        config = self.config
        if config.data.startswith(FEATURES) and not own_path(config.data).is_file():
            raise DataError(
                f"{own_path(config.data)} is missing, and it holds the features of this run; bring it back, or work "
                "where `dsui train` was called."
            )
        if config.data.startswith(FOLDER) and not (folder := folder_path(config.data)).is_dir():
            raise missing_folder(
                folder, "it holds the images of this run: bring them back, or work where `dsui train` was called"
            )
        identity = f"{config.data} {config.known} {config.held_out} {self._stamp(config.data, split)}{self._sifted}"

        def images() -> ImageSet:
            whole = read_split(config, config.data, split, self.root)
            self._note_left_out(f"{config.data}, {split}", whole)
            self._check_classes(whole)
            return choose(whole)

        return ImageSource(name, identity, images)

    def _stamp(self, name: str, split: str) -> str:
        """Computed once, since a large set has many files."""
        if (name, split) not in self._stamps:
            self._stamps[name, split] = stamp(name, split, self.root)
        return self._stamps[name, split]

    def _check_classes(self, whole: ImageSet) -> None:
        known, names = self.config.known, whole.classes
        if known is not None:
            names = tuple(names[label] for label in class_split(known, whole).known)
        if names != self.classes:
            raise DsuiError(
                f"the run was trained on {len(self.classes)} classes and {whole.name} now has {len(names)}"
                f"{'' if len(names) != len(self.classes) else ' others'}; restore the data or train again."
            )

    def _check_images(self, what: str) -> None:
        if self.config.on_features:
            raise DsuiError(f"{what}, and this run was trained on features; leave it out.")

    def _shuffled(self) -> MemorySet:
        noise = shuffled_features(self.training().load(), NOISE_IMAGES, NOISE_SEED)
        return MemorySet("noise", ("noise",), noise, torch.zeros(len(noise), dtype=torch.int64))

    def _load_foreign(self, name: str) -> ImageSet:
        config = self.config
        if name.startswith(FEATURES):
            return foreign_features(own_path(name))
        embedder = self.embedder() if config.on_features and self.embedder is not None else None
        if name.startswith(FOLDER):
            preparation = preparation_of(config) if embedder is None else embedder.preparation
            size, channels = (config.size, config.channels) if embedder is None else (embedder.preparation.size, 3)
            folder = foreign_folder(folder_path(name), size, channels, config.skip_bad, preparation)
            self._note_left_out(name, folder)
            return folder if embedder is None else embedded(folder, embedder, self.progress)
        base, split = foreign_split(name)
        images = drawn_training_images(base, self.root) if split == "train" else load(base, split, self.root)
        return images if embedder is None else embedded(images, embedder, self.progress)

    def _note_left_out(self, name: str, images: ImageSet) -> None:
        if isinstance(images, FolderSet) and images.skipped:
            self._left_out[name] = len(images.skipped)

    def _empty(self) -> MemorySet:
        """A set without images, of the shape of the run's images."""
        kind = torch.float32 if self.config.on_features else torch.uint8
        return MemorySet(self.config.data, ("any",), torch.zeros(0, *self._shape, dtype=kind), torch.zeros(0).long())
