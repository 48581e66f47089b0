"""A trained run, ready to predict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, cast

import torch
from torch import Tensor

from dsui.backbones.registry import OWN
from dsui.data.augment import Transform
from dsui.data.feature_file import EMBEDDING
from dsui.data.features import FeatureTransform
from dsui.errors import RunError
from dsui.excerpt import shorten
from dsui.methods.method import Method
from dsui.methods.registry import build, find, option_kinds, predictors
from dsui.outputs import Outputs
from dsui.plain_json import load_json
from dsui.regular_file import open_regular
from dsui.runs.backbones import buildable_backbone
from dsui.runs.config import RunConfig
from dsui.runs.folder import WEIGHTS
from dsui.runs.images import IMAGES
from dsui.runs.seal import is_sealed
from dsui.runs.training_name import training_name
from dsui.runs.weights import load_weights, read_metadata
from dsui.schema import check, listed, record, text

FACTS = record({"config": text(1 << 18), "classes": text(1 << 22)})
"""What the metadata of weights hold, as JSON."""
CLASSES = listed(text(), most=100_000, least=1)
SAMPLING_SEED = 0
_ONE_AT_A_TIME = RLock()
"""All threads share the random generators and the precision of matrix products, so they take turns."""


@contextmanager
def seeded_sampling(device: torch.device) -> Iterator[None]:
    """Methods that sample draw the same numbers each time this is entered; afterwards the caller's generators go on as
    if nothing had happened. Around one batch, every batch draws alike; around several, they draw one after another."""
    on_gpu = device.type == "cuda"
    with _ONE_AT_A_TIME, torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(SAMPLING_SEED)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(SAMPLING_SEED)
        yield


@torch.no_grad()
def predict_inputs(method: Method, inputs: Tensor) -> Outputs:
    """Outputs of normalised images [B, C, H, W] on their device, of a method in evaluation mode."""
    if inputs.is_cuda:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return method.predict(inputs)


def forward(method: Method, transform: Transform, images: Tensor) -> Outputs:
    """Outputs of uint8 images [B, C, H, W] on their device. A method that samples draws alike for every batch."""
    with seeded_sampling(images.device):
        return predict_inputs(method, transform.plain(images))


@dataclass(frozen=True)
class RunFacts:
    """What the weights file of a run says about the run."""

    path: Path
    config: RunConfig
    classes: tuple[str, ...]
    images: str | None = None
    """The digest of the training images; older runs have none."""
    embedding: str | None = None
    """What made the features, for a run on a file that says so; see `dsui.runs.embedding`."""
    training: str = ""
    """How the run was trained, also where another method predicts."""
    checked: bool = True
    """Whether the weights have a checksum; those of earlier versions have none."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def notes(self) -> list[str]:
        """What a user of the run should know."""
        if self.checked:
            return []
        return [f"the weights of {self.path} are of an earlier dsui, without a checksum, so damage may go unnoticed."]

    def fingerprint(self) -> str:
        """The hash of the bytes of the weights."""
        return fingerprint(self.path)


def fingerprint(run: Path) -> str:
    """The hash of the bytes of a run's weights, which need not be readable as weights."""
    with open_regular(run / WEIGHTS) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def short_fingerprint(fingerprint: str) -> str:
    """The first digits of a fingerprint, which rows and pages show."""
    return fingerprint[:16]


@dataclass(frozen=True)
class Model:
    """`method` is in evaluation mode on its device; `transform` turns 8-bit images into its inputs."""

    facts: RunFacts
    method: Method
    transform: Transform
    device: torch.device


def run_facts(run: Path, method: str | None = None) -> RunFacts:
    """The facts of a run, without reading its weights; `method` is another one to predict with the same weights."""
    path = run / WEIGHTS
    if not run.is_dir():
        raise RunError(f"{run} is not the folder of a run; name the --out of a `dsui train`.")
    metadata = read_metadata(path)
    try:
        config, classes = parse_facts(metadata)
    except ValueError as error:
        raise RunError(
            f"{path} was not written by `dsui train` of this version ({error}); train the run again."
        ) from error
    training = training_name(config)
    if method is not None and method != config.method:
        find(method)
        if method not in (able := predictors(config.method)):
            raise RunError(
                f"{method} does not predict with the weights of {config.method}, which {run} holds; --as may name "
                f"{' or '.join(able)}, and {method} needs a run of its own."
            )
        known = option_kinds(method)
        options = {name: value for name, value in config.options.items() if name in known}
        config = replace(config, method=method, options=options)
    return RunFacts(run, config, classes, metadata.get(IMAGES), metadata.get(EMBEDDING), training, is_sealed(metadata))


def predicts_as_trained(facts: RunFacts) -> bool:
    """Whether the method that predicts is the one that was trained, so that what training measured holds for it."""
    return facts.config.method == parse_facts(read_metadata(facts.path / WEIGHTS))[0].method


def parse_facts(metadata: Mapping[str, str]) -> tuple[RunConfig, tuple[str, ...]]:
    """The config and the classes of a run; a ValueError, or a DsuiError of the recipe, where they are not such."""
    check(dict(metadata), FACTS)
    classes = load_json(metadata["classes"])
    check(classes, CLASSES, "classes")
    config: Any = load_json(metadata["config"])
    return RunConfig.from_mapping(config), tuple(cast("list[str]", classes))


def _check_size(facts: RunFacts, weights: Mapping[str, Tensor]) -> None:
    """Raise unless the file holds as many numbers as the model that it describes: a few bytes can describe a model
    that needs all memory. Tensors on the device "meta" have shapes alone."""
    with torch.device("meta"):
        expected = _build(facts).state_dict()
    if any(name not in weights or weights[name].shape != each.shape for name, each in expected.items()):
        raise _other_weights(facts)


def _build(facts: RunFacts) -> Method:
    config = facts.config
    try:
        return build(config.method, config.backbone, config.channels, len(facts.classes), config.recipe, config.options)
    except TypeError as error:
        raise RunError(
            f"{facts.path / WEIGHTS} was written by another version of dsui; use that one or train the run again."
        ) from error
    except ValueError as error:
        if config.backbone.startswith(OWN):
            raise  # the sentence says what to do in Python
        raise RunError(
            f"{facts.path / WEIGHTS} describes a model that cannot be built ({shorten(error)}); train the run again."
        ) from error


def _other_weights(facts: RunFacts) -> RunError:
    config = facts.config
    return RunError(
        f"{facts.path / WEIGHTS} does not hold the weights of {config.method} on {shorten(config.backbone, 100)}; "
        "choose another run, or the method it was trained with."
    )


def load_model(facts: RunFacts, device: torch.device) -> Model:
    """The trained run in evaluation mode, with the transform from pixels to its inputs."""
    config = facts.config
    path = facts.path / WEIGHTS
    weights, _ = load_weights(path)
    if not_finite := [name for name, each in weights.items() if each.is_floating_point() and not each.isfinite().all()]:
        raise RunError(f"{path} holds NaN or infinity in {not_finite[0]}; copy the file again or train the run again.")
    with buildable_backbone(config):
        _check_size(facts, weights)
        method = _build(facts)
    try:
        method.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise _other_weights(facts) from error
    method.to(device).eval()
    if device.type == "cuda":
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    transform = FeatureTransform() if config.on_features else Transform(mean=config.recipe.mean, std=config.recipe.std)
    return Model(facts, method, transform.to(device), device)
