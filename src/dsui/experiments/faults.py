"""Does what dsui promises about accidents and forged files hold on this machine? A few faults are caused and watched.

A small network is trained on embedded digits, here and in a process of its own that is killed. Then copies of the run
are damaged. Everything lies in a temporary folder. This is a small part of the test suite, for a machine with other
disks, packages and processors than the tests saw.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from dsui.data.digits import digit_set
from dsui.data.unpickle import unpickle
from dsui.errors import DsuiError
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.sources import ImageSources
from dsui.progress import Progress, silent
from dsui.runs.checkpoint import SCHEMA, load_state
from dsui.runs.config import RunConfig
from dsui.runs.files import append_lines, write_atomic
from dsui.runs.folder import LOCK, LOG, STATE, WEIGHTS, RunFolder
from dsui.runs.log import read_log
from dsui.runs.model import load_model, run_facts
from dsui.runs.recipe_file import load_recipe
from dsui.runs.weights import load_weights
from dsui.training.distributed import World
from dsui.training.loop import fit
from dsui.training.reporter import SilentReporter

EPOCHS = 12
CHECKPOINT_SECONDS = 0.01
PATIENCE = 120.0
"""Seconds for what takes about three."""
CPU = torch.device("cpu")
CAUSING = "causing faults"
ARGUMENT = "import sys; from pathlib import Path; path = Path(sys.argv[1]); "
TRAIN = ARGUMENT + "from dsui.experiments.faults import train; train(path)"
HOLD_LOCK = ARGUMENT + (
    "from dsui.runs.files import lock_or_refuse; held = lock_or_refuse(path); print('locked', flush=True); "
    "sys.stdin.read()"
)


class NotHeldError(Exception):
    """A promise is broken; the message says what happened."""


@dataclass(frozen=True)
class Finding:
    """`happened` is what was seen instead, empty where the promise held."""

    promise: str
    held: bool
    happened: str = ""


class Place:
    """A temporary folder, and in it a whole run whose files can be damaged in copies."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.whole, self.marker = folder, folder / "whole", folder / "code-ran"
        self._copies = 0

    def copy(self) -> Path:
        self._copies += 1
        return Path(shutil.copytree(self.whole, self.folder / f"copy-{self._copies}"))

    def code(self) -> Code:
        return Code(self.marker)


class Code:
    """An object whose pickle makes a folder when it is read without restrictions."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


def find(progress: Progress = silent) -> list[Finding]:
    """A finding for each promise."""
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        train(place.whole)
        for done, (promise, check) in enumerate(PROMISES.items()):
            progress(CAUSING, done, len(PROMISES))
            try:
                check(place)
            except NotHeldError as error:
                findings.append(Finding(promise, False, str(error)))
            except Exception as error:  # of any kind: this is what is looked for
                findings.append(Finding(promise, False, f"{type(error).__name__}: {error}"))
            else:
                findings.append(Finding(promise, True))
        progress(CAUSING, len(PROMISES), len(PROMISES))
    return findings


def train(run: Path, resume: bool = False) -> None:
    """Train the run to its end, with many checkpoints, on one thread: equal bits need equal numbers of threads."""
    recipe = load_recipe("demo", "digits", {"epochs": EPOCHS})
    images = digit_set("train")
    config = RunConfig(
        data="digits",
        backbone="small",
        method="msp",
        seed=0,
        size=images.shape[1],
        channels=images.shape[0],
        recipe=recipe,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        fit(config, images, run, CPU, World(), SilentReporter(), resume=resume, checkpoint_seconds=CHECKPOINT_SECONDS)
    finally:
        torch.set_num_threads(threads)


def killed_training(place: Place) -> None:
    broken = place.folder / "broken"
    with _process(TRAIN, broken) as training:
        _wait(lambda: training.poll() is not None or (read_log(broken / LOG).rows and (broken / STATE).exists()))
        if training.poll() is not None:
            raise NotHeldError("the training ended before it could be killed")
    train(broken, resume=True)
    found, expected = (load_weights(run / WEIGHTS)[0] for run in (broken, place.whole))
    if different := [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)]:
        raise NotHeldError(f"{len(different)} of {len(expected)} tensors differ")


def cut_weights(place: Place) -> None:
    run = place.copy()
    os.truncate(run / WEIGHTS, (run / WEIGHTS).stat().st_size // 2)
    with _refused("half of the weights were loaded"):
        load_model(run_facts(run), CPU)


def changed_weights(place: Place) -> None:
    run = place.copy()
    _flip(run / WEIGHTS, -1000)  # the end of the file holds numbers
    with _refused("weights with a wrong byte were loaded"):
        load_model(run_facts(run), CPU)


def changed_state(place: Place) -> None:
    run = place.copy()
    _flip(run / STATE, (run / STATE).stat().st_size // 2)
    with _refused("a checkpoint with a wrong byte was loaded"):
        load_state(run / STATE, CPU)


def torn_log(place: Place) -> None:
    log = place.copy() / LOG
    rows = read_log(log).rows
    with log.open("ab") as stream:
        stream.write(b'{"epoch": 99, "lo')
    torn = read_log(log)
    append_lines(log, b'{"epoch": 100}\n')
    if (torn.rows, torn.torn) != (rows, True) or read_log(log).rows != [*rows, {"epoch": 100}]:
        raise NotHeldError("lines before or after it were lost")


def half_written_outputs(place: Place) -> None:
    facts = run_facts(place.copy())
    source = ImageSources(facts.config, facts.classes, "test", None, False, facts.images).own()
    with OutputCache(facts, CPU) as cache:
        stored = cache.get(source)
        expected = stored.whole().logits
        os.truncate(stored.paths[0], stored.paths[0].stat().st_size // 2)
        found = cache.get(source).whole().logits
    if not torch.equal(found, expected):
        raise NotHeldError("other outputs were read")


def failed_write(place: Place) -> None:
    path = place.folder / "file"
    path.write_bytes(b"former")

    def fail(stream: object) -> None:
        stream.write(b"new")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        write_atomic(path, fail)
    if path.read_bytes() != b"former" or [other.name for other in place.folder.glob("file.*")]:
        raise NotHeldError("the former file is gone, or a part of the new one was left")


def locked_run(place: Place) -> None:
    run = place.copy()
    with _process(HOLD_LOCK, run / LOCK) as holder:
        if holder.stdout is None or holder.stdout.readline().strip() != b"locked":
            raise NotHeldError("a process of its own could not lock a run")
        with _refused("a second process opened the run"):
            RunFolder.resume(run, run_facts(run).config).close()
    RunFolder.resume(run, run_facts(run).config).close()  # the lock of a dead process is none


def forged_state(place: Place) -> None:
    run = place.copy()
    torch.save({"schema": SCHEMA, "state": place.code()}, run / STATE)
    try:
        with _refused("a checkpoint with code was loaded"):
            load_state(run / STATE, CPU)
    finally:
        _no_code_ran(place)


def forged_images(place: Place) -> None:
    path = place.folder / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": place.code()}))
    try:
        with _refused("a CIFAR file with code was read"):
            unpickle(path)
    finally:
        _no_code_ran(place)


PROMISES: dict[str, Callable[[Place], None]] = {
    "a killed training resumes to the same bits": killed_training,
    "weights that were cut off are refused": cut_weights,
    "weights with a wrong byte are refused": changed_weights,
    "a checkpoint with a wrong byte is refused": changed_state,
    "a torn line of the log costs no other line": torn_log,
    "outputs that were half written are computed again": half_written_outputs,
    "a write that fails half-way leaves the former file": failed_write,
    "a run in use by another process is refused": locked_run,
    "code in a checkpoint is not run": forged_state,
    "code in a CIFAR file is not run": forged_images,
}
if sys.platform == "win32":  # has no lock that dies with its process
    del PROMISES["a run in use by another process is refused"]


@contextmanager
def _process(code: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Python that runs the code with a path, and is killed at the end of the block."""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603
        try:
            yield process
        finally:
            process.kill()


def _wait(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise NotHeldError(f"a training saved nothing within {PATIENCE:.0f} s")
        time.sleep(0.005)


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)


@contextmanager
def _refused(otherwise: str) -> Iterator[None]:
    """The block must raise an error with a sentence for the user."""
    try:
        yield
    except DsuiError:
        return
    raise NotHeldError(otherwise)


def _no_code_ran(place: Place) -> None:
    if place.marker.exists():
        place.marker.rmdir()
        raise NotHeldError("its code ran")
