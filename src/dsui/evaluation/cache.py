"""Outputs on disk: a forward pass happens once for each model and data set.

Outputs are stored in chunks, RUN/outputs/SET-KEY-00000.safetensors and so on, so that a million images need no more
memory than one chunk. KEY hashes the weights, the method, the data set's files, the images' shape and their
normalisation. The metadata of every chunk hold the whole key, the chunk's number and the number of chunks, so outputs
of other weights, of changed images or of an interrupted pass are never used. A chunk is written under another name and
then renamed; one that is cut off, or has no checksum or a wrong one, is computed again. One process at a time computes
outputs of a run; others wait and then find them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dsui.data.dataset import ImageSet
from dsui.data.pipeline import open_loader, plain_batches
from dsui.errors import DsuiError, RunError
from dsui.evaluation.chunks import read_facts
from dsui.methods.registry import effective_options
from dsui.outputs import DEFINITION, Outputs
from dsui.progress import Progress, silent
from dsui.regular_file import check_regular
from dsui.runs.files import wait_for_lock, write_atomic
from dsui.runs.model import Model, RunFacts, load_model, predict_inputs, seeded_sampling, short_fingerprint
from dsui.runs.seal import BrokenSealError, check_seal, sealed

CHUNK = 10_000
BATCH = 500
AHEAD = 3  # sets that are read in advance: some are slow to read, others slow to predict
LAYOUT = 2  # version of the files' metadata; files of an earlier one are not used
PART = ".part"  # ends the name of a chunk until it is whole
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)  # what a folder says that may not be written to


class ImageSource(NamedTuple):
    """Images to predict."""

    name: str
    """Short, for the names of files."""
    identity: str
    """What else distinguishes these images from others."""
    load: Callable[[], ImageSet]
    change: Callable[[Model, Tensor, Tensor], Tensor] | None = None
    """From 8-bit images and labels to network inputs, where that is not plain normalisation: an attack, for example."""
    logits_only: bool = False
    """Whether the other outputs are dropped."""

    def inputs(self, model: Model, images: Tensor, labels: Tensor) -> Tensor:
        """Network inputs of 8-bit images [B, C, H, W]."""
        return model.transform.plain(images) if self.change is None else self.change(model, images, labels)


@dataclass(frozen=True)
class StoredOutputs:
    """The chunks of one model and data set."""

    paths: tuple[Path, ...]
    count: int
    seconds: float
    """The time of the forward passes, without loading the images."""
    passes: int
    """Forward passes for one prediction."""
    classes: tuple[str, ...]
    """Names of the classes of the images' data set."""
    device: str
    """The device that computed the forward passes."""

    def chunks(self, features: bool = True) -> Iterator[Outputs]:
        """Outputs chunk by chunk. `features` False does not read the features, the largest part, and gives [N, 0]."""
        for path in self.paths:
            with safe_open(path, framework="pt") as content:
                names = [name for name in content.keys() if features or name != "features"]  # noqa: SIM118
                parts = {name: content.get_tensor(name) for name in names}
                yield Outputs.of({"features": torch.zeros(len(parts["logits"]), 0), **parts})

    def part(self, name: str) -> Tensor | None:
        """One part of the outputs for all images, without reading the others; None where the model has none."""
        found = []
        for path in self.paths:
            with safe_open(path, framework="pt") as content:
                if name not in content.keys():  # noqa: SIM118
                    return None
                found.append(content.get_tensor(name))
        return torch.cat(found)

    def whole(self) -> Outputs:
        return Outputs.concatenated(self.chunks())


class OutputCache:
    """The outputs of one run. `keep` False computes them again and deletes them when the cache is closed.

    Where the run's folder cannot be written to, what it holds is used, the rest is not kept, and `warn` is told.
    """

    def __init__(
        self,
        facts: RunFacts,
        device: torch.device,
        keep: bool = True,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.facts, self.device, self.warn = facts, device, warn
        self._closing = ExitStack()
        self.folder = facts.path / "outputs" if keep else self._passing_folder()
        self._read = [self.folder]
        self._whole: set[tuple[Path, int, int]] = set()
        self._fingerprint = facts.fingerprint()
        self._model: Model | None = None

    def __enter__(self) -> OutputCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete what is not kept."""
        self._closing.close()

    @property
    def weights(self) -> str:
        """The fingerprint of the run's weights, as results rows show it."""
        return short_fingerprint(self._fingerprint)

    @property
    def model(self) -> Model:
        """Loaded when first needed: stored outputs need no model."""
        if self._model is None:
            self._model = load_model(self.facts, self.device)
            if self.facts.fingerprint() != self._fingerprint:
                raise RunError(f"the weights in {self.facts.path} were replaced in the meantime; run this again.")
        return self._model

    def get(self, source: ImageSource, progress: Progress = silent) -> StoredOutputs:
        """From disk, or by a forward pass; `progress` is told the set, and the images done and in all."""
        if found := self._find(source):
            return found
        with ExitStack() as closing:
            try:
                closing.enter_context(_locked(self.folder))
            except RunError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno not in READ_ONLY:
                    raise
                self.warn(f"{self.folder} cannot be written to ({cause.strerror}), so the outputs are not kept.")
                self.folder = self._passing_folder()
                self._read.append(self.folder)
                closing.enter_context(_locked(self.folder))
            return self._find(source) or self._compute(source, progress)

    def read_ahead(self, sources: Iterable[ImageSource]) -> Iterator[ImageSource]:
        """The sources whose outputs are not stored yet. Pass each to `get` before taking the next one: in the meantime
        the images of the next AHEAD sets are read, one set after another."""
        missing = iter([source for source in sources if self._find(source) is None])
        reader = ThreadPoolExecutor(1)
        try:
            reading = deque((source, reader.submit(source.load)) for source in islice(missing, AHEAD))
            while reading:
                source, images = reading.popleft()
                reading.extend((following, reader.submit(following.load)) for following in islice(missing, 1))
                yield source._replace(load=images.result)
        finally:  # also where a set cannot be read or the user stops: no further set is begun
            reader.shutdown(wait=False, cancel_futures=True)

    def _passing_folder(self) -> Path:
        """A folder that is deleted when the cache is closed."""
        return Path(self._closing.enter_context(TemporaryDirectory()))

    def _names(self, source: ImageSource) -> tuple[str, str]:
        """The beginning of the names of a set's files, and its key."""
        config = self.facts.config
        # defaults may change between versions; what the recipe says is in the weights' fingerprint
        options = effective_options(config.method, config.recipe, config.options)
        facts = {
            "definition": [DEFINITION, LAYOUT],
            "weights": self._fingerprint,
            "method": config.method,
            "options": {key: value for key, value in options.items() if key not in config.recipe.method_options},
            "images": [source.name, source.identity],
            "shape": [config.channels, config.size],
            "normalised": [config.recipe.mean, config.recipe.std],
        }
        key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
        return f"{_file_name(source.name)}-{key[:12]}", key

    def _find(self, source: ImageSource) -> StoredOutputs | None:
        return next((found for folder in self._read if (found := self._find_in(folder, source))), None)

    def _find_in(self, folder: Path, source: ImageSource) -> StoredOutputs | None:
        stem, key = self._names(source)
        paths = sorted(folder.glob(f"{stem}-*.safetensors"))
        found = [_metadata(path) for path in paths]
        expected = [(key, str(number), str(len(paths))) for number in range(len(paths))]
        if not paths or [(each.get("key"), each.get("chunk"), each.get("chunks")) for each in found] != expected:
            return None
        if not all(map(self._is_whole, paths)):
            return None
        try:
            facts = read_facts(paths, found[-1])
        except ValueError:  # a part is missing, or of another program: they are computed again
            return None
        return StoredOutputs(tuple(paths), *facts)

    def _is_whole(self, path: Path) -> bool:
        """Whether a chunk is as it was written; each is read once to find out."""
        try:
            status = path.stat()
            known = (path, status.st_ino, status.st_mtime_ns)
            if known not in self._whole:
                check_seal(path)
                self._whole.add(known)
        except (OSError, BrokenSealError):
            return False
        return True

    def _compute(self, source: ImageSource, progress: Progress) -> StoredOutputs:
        stem, key = self._names(source)
        images = source.load()
        self._check(images)
        for stale in (*self.folder.glob(f"{stem}-*.safetensors"), *self.folder.glob(f"*{PART}")):  # or left by a kill
            stale.unlink(missing_ok=True)
        total, seconds = len(images.labels), 0.0
        facts = {"key": key, "set": source.name, "count": str(total), "classes": json.dumps(images.classes)}
        facts |= {"chunks": str(-(-total // CHUNK)), "passes": str(self.model.method.passes)}
        facts["device"] = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        paths: list[Path] = []
        passes = self._passes(source, images, progress)
        # one chunk is written while the next one is computed; a method that samples goes on drawing from batch to batch
        with ThreadPoolExecutor(1) as writer, seeded_sampling(self.device):
            written: Future[None] | None = None
            while batches := list(islice(passes, CHUNK // BATCH)):
                parts, times = zip(*batches, strict=True)
                seconds += sum(times)
                path = self.folder / f"{stem}-{len(paths):05d}.safetensors"
                own = {"chunk": str(len(paths)), "seconds": repr(seconds)}
                if written is not None:
                    written.result()
                written = writer.submit(_write, path, Outputs.concatenated(parts).tensors(), facts | own)
                paths.append(path)
            if written is not None:
                written.result()
        return StoredOutputs(tuple(paths), total, seconds, self.model.method.passes, images.classes, facts["device"])

    def _passes(self, source: ImageSource, images: ImageSet, progress: Progress) -> Iterator[tuple[Outputs, float]]:
        """Batch by batch, with the seconds of each. CHUNK is a multiple of BATCH, so every batch lies in one chunk."""
        model, done = self.model, 0
        for batch in open_loader(images, self.device).stream(plain_batches(len(images.labels), BATCH)):
            began = time.perf_counter()
            predicted = predict_inputs(model.method, source.inputs(model, batch.images, batch.labels)).tensors()
            if source.logits_only:
                predicted = {"logits": predicted["logits"], "features": predicted["features"][:, :0]}
            outputs = Outputs.of({**predicted, "labels": batch.labels}).to("cpu")
            done += len(outputs)
            progress(source.name, done, len(images.labels))
            yield outputs, time.perf_counter() - began

    def _check(self, images: ImageSet) -> None:
        config = self.facts.config
        if config.on_features and images.shape[0] != config.channels:
            raise DsuiError(
                f"{images.name} has {images.shape[0]:,} features and {self.facts.path} was trained on "
                f"{config.channels:,}; bring back its own, or train again."
            )
        if images.shape != (config.channels, config.size, config.size):
            raise DsuiError(
                f"{images.name} has images of {images.shape} and {self.facts.path} was trained on "
                f"{(config.channels, config.size, config.size)} (channels, height, width); evaluate it on such images."
            )


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Unlike a checkpoint it is not forced to the disk: outputs that a power cut destroys are computed again."""
    # not save_file: its files can be read by their owner alone
    content = sealed(save({name: value.contiguous() for name, value in tensors.items()}, metadata))
    try:
        write_atomic(path, lambda stream: stream.write(content), path.with_name(path.name + PART), durable=False)
    except RunError as error:
        raise _write_error(path, error.__cause__) from error


def _metadata(path: Path) -> dict[str, str]:
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as content:
            found: Any = content.metadata()
            return dict(found or {})
    except (OSError, SafetensorError):
        return {}


def _file_name(name: str) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-.") else "_" for letter in name)[:60]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process computes outputs into this folder, and keep others out while this is open."""
    with ExitStack() as closing:
        try:
            folder.mkdir(exist_ok=True)
            closing.enter_context(wait_for_lock(folder / ".lock"))
        except OSError as error:
            raise _write_error(folder, error) from error
        yield


def _write_error(path: Path, error: BaseException | None) -> RunError:
    reason = error.strerror if isinstance(error, OSError) else error
    return RunError(f"{path} cannot be written ({reason}); remove the cause, or choose --no-cache.")
