"""Rows of predictions by Ray Data: for folders of more files than one machine can answer.

    listing    one task walks through the folders and gives names in batches, as it finds them
    reading    tasks make the pixels of a batch, wherever a processor is free
    answering  actors, which keep the model, make its rows: one on each GPU, or on up to half of the processors

The rows come in the order of the listing. Ray repeats what was lost with a process or a machine. Folders and model must
have the same path on every machine.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsui.data.image_files import image_files
from dsui.deploy.answers import Answered, shown_name
from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.prediction import Prediction
from dsui.regular_file import open_regular
from dsui.runtime.inputs import ImageForm
from dsui.runtime.rows import PredictionRow, ReadFile, further_scores, read_file, rows_of_read

ONNX = ".onnx"
FEWEST_PROCESSORS = 2
"""One reads and one answers."""
Batch = dict[str, NDArray[Any]]
"""A batch of Ray Data has one row, which is a batch of files, so that Ray never cuts or joins them."""


class AnsweringModel(NamedTuple):
    """What answers: how it takes its images, how it predicts [N, C, H, W], and the scores with columns of their own.
    `fingerprint` changes with the model and `decides` with its thresholds; `told` is what to know of both."""

    form: ImageForm
    predict: Callable[[NDArray[np.uint8]], Prediction]
    more: Sequence[str]
    fingerprint: str
    decides: str
    told: Sequence[str]


def open_model(path: Path, device: str, threads: int | None = None) -> AnsweringModel:
    """A run on a device, or a file of `dsui export`, which is computed on the processors."""
    return _of_file(path, threads) if path.suffix.lower() == ONNX else _of_run(path, device)


def _of_file(path: Path, threads: int | None) -> AnsweringModel:
    from dsui.runtime.predictor import OnnxPredictor

    predictor = OnnxPredictor(path, threads)
    facts = predictor.facts
    more = further_scores(() if facts.thresholds is None else facts.thresholds.limits)
    with open_regular(path) as stream:
        fingerprint = hashlib.file_digest(stream, "sha256").hexdigest()
    saved = [] if facts.saved_threshold is None else [facts.saved_threshold]
    return AnsweringModel(
        predictor.form,
        lambda pixels: predictor.predict(pixels, len(pixels)),
        more,
        fingerprint,
        "",
        [*saved, facts.short_verdict],
    )


def _of_run(path: Path, device: str) -> AnsweringModel:
    from dsui.deploy.predictor import Predictor
    from dsui.evaluation.verdict import short_verdict

    predictor = Predictor.load(path, device)
    facts, chosen = predictor.model.facts, predictor.chosen
    more = further_scores(() if chosen is None else chosen.limits)
    saved = [] if chosen is None else [chosen.saved_sentence]
    return AnsweringModel(
        predictor.form,
        lambda pixels: predictor.predict(pixels, len(pixels)),
        more,
        facts.fingerprint(),
        "" if chosen is None else chosen.to_text(),
        [*facts.notes, *saved, short_verdict(facts)],
    )


def ray_rows(
    ray: Any, model: Path, form: ImageForm, files: Iterable[Path], answered: Answered, batch: int, device: str
) -> Iterator[list[PredictionRow]]:
    """Rows of the files that are not answered, a batch at a time; `files` are those and folders of them."""
    data, folder = import_module("ray.data"), str(Path.cwd())
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what fails is told by an exception
    resources = ray.cluster_resources()
    gpus = 0 if device == "cpu" or model.suffix.lower() == ONNX else int(resources.get("GPU", 0))
    processors = int(resources.get("CPU", 1))
    if processors < FEWEST_PROCESSORS:
        raise DsuiError("--engine ray needs two processors, and the cluster has one; leave --engine out.")
    listed = data.read_datasource(
        _listing(ray, [Path(each) for each in files], answered, batch, folder),
        override_num_blocks=1,
        num_cpus=0,  # it waits for the others most of the time
    )
    context = listed.context
    context.target_max_block_size = 1  # byte: each batch is a block of its own, and none waits for others
    context.execution_options.preserve_order = True
    context.enable_progress_bars = context.print_on_execution_start = False
    reading = listed.map_batches(
        _Reading(form, folder),
        batch_size=1,
        memory=batch * form.channels * form.size**2,  # bytes; Ray joins steps into one where both need the same
    )
    answering = reading.map_batches(
        _Answering,
        batch_size=1,
        fn_constructor_args=(model.absolute(), device),
        compute=data.ActorPoolStrategy(min_size=1, max_size=gpus or processors // 2),
        num_gpus=1 if gpus else 0,
    )
    try:
        for found in answering.iter_batches(batch_size=1, batch_format="numpy", prefetch_batches=0):
            yield found["rows"][0].rows
    except ray.exceptions.RayError as error:
        raise _told(error) from error


def _told(error: BaseException) -> DsuiError:
    """The sentence of dsui that is the cause of an error of Ray, or one about that error."""
    seen: list[BaseException] = []
    at: Any = error
    while isinstance(at, BaseException) and at not in seen:
        if isinstance(at, DsuiError):
            return at
        seen.append(at)
        at = getattr(at, "cause", None) or at.__cause__
    return DsuiError(
        f"Ray could not go on ({type(error).__name__}: {shorten(error)}); remove the cause, and the same command "
        "continues."
    )


def _listing(ray: Any, paths: list[Path], answered: Answered, batch: int, folder: str) -> Any:
    """A source for Ray Data that consists of one task, which goes through the folders while others read."""
    import pyarrow as pa
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    known = ray.put(answered.digests)

    def batches() -> Iterator[pa.Table]:
        os.chdir(folder)
        done = Answered(ray.get(known))
        waiting = (file for file in image_files(paths) if shown_name(file) not in done)
        while found := [os.fsencode(file) for file in islice(waiting, batch)]:
            yield pa.table({"files": pa.array([found], pa.list_(pa.large_binary()))})

    class Listing(Datasource):
        def get_name(self) -> str:
            return "Listing"

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            del parallelism
            return [ReadTask(batches, BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None))]

    return Listing()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _ReadBatch:
    found: list[ReadFile]


@dataclass(frozen=True)
class _Answer:
    rows: list[PredictionRow]


class _Reading:
    """Reads the files of a batch, in a task."""

    def __init__(self, form: ImageForm, folder: str) -> None:
        self.form, self.folder = form, folder

    def __call__(self, batch: Batch) -> Batch:
        os.chdir(self.folder)  # names are as the user wrote them
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")  # about odd files that it can read
            found = [read_file(Path(os.fsdecode(bytes(name))), self.form) for name in batch["files"][0]]
        return {"read": _alone(_ReadBatch(found))}


class _Answering:
    """Keeps the model, in an actor, and answers for the files of a batch."""

    def __init__(self, model: Path, device: str) -> None:
        self.model = open_model(model, device, threads=1)

    def __call__(self, batch: Batch) -> Batch:
        found: list[ReadFile] = batch["read"][0].found
        return {"rows": _alone(_Answer(rows_of_read(found, self.model.predict, self.model.more)))}


def _alone(value: object) -> NDArray[Any]:
    """A column of one object, which Ray pickles between its processes."""
    column = np.empty(1, dtype=object)
    column[0] = value
    return column
