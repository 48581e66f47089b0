"""Outputs on disk, of a method that only counts how often it is asked."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dsui.data.augment import Transform
from dsui.data.dataset import MemorySet
from dsui.errors import DsuiError, RunError
from dsui.evaluation import cache as module
from dsui.evaluation.cache import ImageSource, OutputCache, StoredOutputs
from dsui.methods.method import Method
from dsui.outputs import Outputs
from dsui.runs.config import RunConfig
from dsui.runs.files import wait_for_lock
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import Model, RunFacts, run_facts
from dsui.runs.recipe_file import load_recipe
from tests.support import digit_runs

CPU = torch.device("cpu")
CLASSES = ("even", "odd")
CONFIG = RunConfig(
    data="digits", backbone="small", method="msp", seed=0, size=2, channels=1, recipe=load_recipe("demo", "digits")
)


class Counted(Method):
    """Logits by a fixed matrix, and one random number for each image."""

    passes = 3
    asked = 0

    def loss(self, output: Any, labels: Tensor) -> Tensor:
        raise NotImplementedError

    def logits(self, output: Any) -> Tensor:
        raise NotImplementedError

    def predict(self, images: Tensor) -> Outputs:
        Counted.asked += 1
        features = images.flatten(1)
        weight = torch.linspace(-1, 1, 8).view(2, 4)
        return Outputs(features, features @ weight.T, own={"draw": torch.rand(len(images))}, weight=weight)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_counted(facts: RunFacts, device: torch.device) -> Model:
        transform = Transform(mean=facts.config.recipe.mean, std=facts.config.recipe.std)
        return Model(facts, Counted(), transform, device)

    monkeypatch.setattr(Counted, "asked", 0)
    monkeypatch.setattr(module, "load_model", load_counted)
    monkeypatch.setattr(module, "CHUNK", 100)
    monkeypatch.setattr(module, "BATCH", 50)


def images(count: int = 230, seed: int = 0) -> MemorySet:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 1, 2, 2), dtype=torch.uint8, generator=generator)
    return MemorySet("squares", CLASSES, pixels, torch.arange(count) % 2)


def source(identity: str = "first", name: str = "test", count: int = 230, seed: int = 0) -> ImageSource:
    return ImageSource(name, identity, lambda: images(count, seed))


@pytest.fixture
def facts(tmp_path: Path) -> RunFacts:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / WEIGHTS).write_bytes(b"weights of seed 0")
    return RunFacts(tmp_path / "run", CONFIG, CLASSES)


def files(facts: RunFacts) -> list[Path]:
    return sorted((facts.path / "outputs").glob("*.safetensors"))


def asked_by(action: Callable[[], object]) -> int:
    before = Counted.asked
    action()
    return Counted.asked - before


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("nothing happened in five seconds")


def right(stored: StoredOutputs, of: MemorySet | None = None) -> bool:
    """Whether these are the outputs of all images, in order."""
    of = of or images()
    whole = stored.whole()
    expected = Transform(mean=(0.5,), std=(0.5,)).plain(of.images).flatten(1)
    assert whole.labels is not None
    return torch.equal(whole.features, expected) and torch.equal(whole.labels, of.labels)


def test_a_forward_pass_happens_once_and_later_the_model_is_not_even_loaded(
    facts: RunFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = OutputCache(facts, CPU)
    assert asked_by(lambda: first.get(source())) == 5  # batches of 50 for 230 images
    assert asked_by(lambda: first.get(source())) == 0
    monkeypatch.delattr(module, "load_model")

    def absent() -> MemorySet:
        raise AssertionError("the images were read")

    again = OutputCache(facts, CPU).get(ImageSource("test", "first", absent))
    assert right(again)
    assert (again.count, again.passes, again.classes, again.device, len(again.paths)) == (230, 3, CLASSES, "cpu", 3)
    assert again.seconds > 0


def test_the_next_sets_images_are_read_while_one_is_looked_at_and_those_that_are_there_are_not(facts: RunFacts) -> None:
    cache = OutputCache(facts, CPU)
    cache.get(source())
    read: list[str] = []

    def named(name: str) -> ImageSource:
        def load() -> MemorySet:
            read.append(name)
            return images()

        return ImageSource(name, "first", load)

    asked = cache.read_ahead([named(name) for name in ("test", *"abcdef")])
    assert next(asked).name == "a"
    wait_until(lambda: read == list("abcd"))  # and no more: every set is held in memory
    found = [cache.get(each) for each in asked]
    assert len(found) == 5
    assert all(right(stored) for stored in found)
    assert read == list("abcdef")


def test_images_that_cannot_be_read_are_told_when_their_turn_comes(facts: RunFacts) -> None:
    def broken() -> MemorySet:
        raise DsuiError("no such images.")

    asked = OutputCache(facts, CPU).read_ahead([source(), ImageSource("broken", "", broken)])
    next(asked)
    with pytest.raises(DsuiError, match="no such images"):
        next(asked).load()


def test_chunks_hold_what_the_method_predicted_to_the_last_bit(facts: RunFacts) -> None:
    stored = OutputCache(facts, CPU).get(source())
    assert right(stored)
    assert [len(chunk) for chunk in stored.chunks()] == [100, 100, 30]
    bare = list(stored.chunks(features=False))
    assert [chunk.features.shape for chunk in bare] == [(100, 0), (100, 0), (30, 0)]
    whole = stored.whole()
    for name, value in whole.tensors().items():
        if name != "weight":
            found = stored.part(name)
            assert found is not None
            assert torch.equal(found, value), name
    assert stored.part("log_joint") is None
    assert whole.weight is not None
    assert torch.equal(whole.logits, whole.features @ whole.weight.T)
    assert torch.equal(whole.logits, torch.cat([chunk.logits for chunk in bare]))


def test_progress_hears_of_every_batch_up_to_the_last_image(facts: RunFacts) -> None:
    heard: list[tuple[str, int, int | None]] = []
    OutputCache(facts, CPU).get(source(), lambda *report: heard.append(report))
    assert heard == [(source().name, done, 230) for done in (50, 100, 150, 200, 230)]


def with_recipe(facts: RunFacts, **changes: Any) -> RunFacts:
    return replace(facts, config=replace(facts.config, recipe=replace(facts.config.recipe, **changes)))


def retrained(facts: RunFacts) -> RunFacts:
    (facts.path / WEIGHTS).write_bytes(b"weights of seed 1")
    return facts


OTHERS: dict[str, Callable[[RunFacts], RunFacts]] = {
    "retrained weights": retrained,
    "another mean": lambda facts: with_recipe(facts, mean=(0.4,)),
    "another deviation": lambda facts: with_recipe(facts, std=(0.4,)),
    "another method": lambda facts: replace(facts, config=replace(facts.config, method="logitnorm")),
    "another option": lambda facts: replace(facts, config=replace(facts.config, options={"samples": 3})),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_outputs_of_another_model_are_not_used(facts: RunFacts, change: Callable[[RunFacts], RunFacts]) -> None:
    OutputCache(facts, CPU).get(source())
    other = change(facts)
    assert asked_by(lambda: OutputCache(other, CPU).get(source())) == 5
    assert asked_by(lambda: OutputCache(other, CPU).get(source())) == 0


@pytest.mark.parametrize("other", [source("second", seed=1), source("second"), source(name="svhn")])
def test_outputs_of_other_images_are_not_used(facts: RunFacts, other: ImageSource) -> None:
    cache = OutputCache(facts, CPU)
    cache.get(source())
    found: list[StoredOutputs] = []
    assert asked_by(lambda: found.append(cache.get(other))) == 5
    assert right(found[0], other.load())  # type: ignore[arg-type]
    assert asked_by(lambda: cache.get(source())) == 0, "both are kept"


def removed(paths: list[Path]) -> None:
    paths[1].unlink()


def last_removed(paths: list[Path]) -> None:
    paths[-1].unlink()


def renamed(paths: list[Path]) -> None:
    shutil.copy(paths[0], paths[1])


def exchanged(paths: list[Path]) -> None:
    paths[0].rename(paths[0].with_suffix(".away"))
    paths[1].rename(paths[0])
    paths[0].with_suffix(".away").rename(paths[1])


def one_too_many(paths: list[Path]) -> None:
    shutil.copy(paths[-1], paths[-1].with_name(paths[-1].name.replace("-00002", "-00003")))


def of_another_run(paths: list[Path]) -> None:
    there = paths[0].parents[2] / "other"
    there.mkdir()
    (there / WEIGHTS).write_bytes(b"weights of another run")
    foreign = OutputCache(RunFacts(there, CONFIG, CLASSES), CPU).get(source())
    for path, other in zip(paths, foreign.paths, strict=True):
        shutil.copy(other, path)


def not_ours(paths: list[Path]) -> None:
    paths[0].write_text("not a safetensors file")


def half_written(paths: list[Path]) -> None:
    """What a killed process leaves: the first chunk, and the next one under another name."""
    paths[1].rename(paths[1].with_suffix(".safetensors.tmp"))
    paths[2].unlink()


def one_bit_wrong(paths: list[Path]) -> None:
    content = bytearray(paths[1].read_bytes())
    content[-3] ^= 1
    paths[1].write_bytes(content)


def one_digit_of_the_metadata_wrong(paths: list[Path]) -> None:
    content = paths[2].read_bytes()
    assert b'"count":"230"' in content
    paths[2].write_bytes(content.replace(b'"count":"230"', b'"count":"231"'))


def without_a_checksum(paths: list[Path]) -> None:
    """As earlier versions wrote them."""
    for path in paths:
        with safe_open(path, "pt") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            metadata = {name: text for name, text in content.metadata().items() if not name.startswith("sha256")}
        save_file(tensors, path, metadata)


def written_again(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """As whoever knows the format can write it, checksums included."""
    module._write(path, tensors, metadata)


def opened(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as content:
        return {name: content.get_tensor(name) for name in content.keys()}, content.metadata()  # noqa: SIM118


def without_logits(paths: list[Path]) -> None:
    for path in paths:
        tensors, metadata = opened(path)
        written_again(path, {name: each for name, each in tensors.items() if name != "logits"}, metadata)


def without_own_scores(paths: list[Path]) -> None:
    tensors, metadata = opened(paths[1])
    written_again(paths[1], {name: each for name, each in tensors.items() if not name.startswith("own.")}, metadata)


def with_another_part(paths: list[Path]) -> None:
    for path in paths:
        tensors, metadata = opened(path)
        written_again(path, {**tensors, "strange": tensors["logits"].clone()}, metadata)


def of_fewer_images(paths: list[Path]) -> None:
    tensors, metadata = opened(paths[0])
    written_again(paths[0], {name: each[:-1] if name == "labels" else each for name, each in tensors.items()}, metadata)


def without_a_fact(paths: list[Path]) -> None:
    tensors, metadata = opened(paths[-1])
    written_again(paths[-1], tensors, {name: value for name, value in metadata.items() if name != "seconds"})


def with_a_fact_of_another_kind(paths: list[Path]) -> None:
    tensors, metadata = opened(paths[-1])
    written_again(paths[-1], tensors, {**metadata, "count": "null"})


def of_unknown_numbers(paths: list[Path]) -> None:
    tensors, metadata = opened(paths[0])
    written_again(paths[0], {**tensors, "logits": tensors["logits"].to(torch.float8_e4m3fn)}, metadata)


def a_pipe(paths: list[Path]) -> None:
    paths[0].unlink()
    os.mkfifo(paths[0])


FORGERIES = [
    without_logits,
    without_own_scores,
    with_another_part,
    of_fewer_images,
    without_a_fact,
    with_a_fact_of_another_kind,
    of_unknown_numbers,
    a_pipe,
]
DAMAGES = [
    *FORGERIES,
    removed,
    last_removed,
    renamed,
    exchanged,
    one_too_many,
    of_another_run,
    not_ours,
    half_written,
    one_bit_wrong,
    one_digit_of_the_metadata_wrong,
    without_a_checksum,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_incomplete_or_foreign_chunks_are_computed_anew(facts: RunFacts, damage: Callable[[list[Path]], None]) -> None:
    stored = OutputCache(facts, CPU).get(source())
    damage(list(stored.paths))
    found: list[StoredOutputs] = []
    assert asked_by(lambda: found.append(OutputCache(facts, CPU).get(source()))) == 5
    assert right(found[0])
    assert asked_by(lambda: OutputCache(facts, CPU).get(source())) == 0
    assert len(files(facts)) == 3


@pytest.mark.parametrize("chunk", [0, 1, 2])
@pytest.mark.parametrize("length", [0, 5, 100, -1000, -1])
def test_a_chunk_that_is_cut_off_is_computed_anew(facts: RunFacts, chunk: int, length: int) -> None:
    path = OutputCache(facts, CPU).get(source()).paths[chunk]
    path.write_bytes(path.read_bytes()[:length])
    found: list[StoredOutputs] = []
    assert asked_by(lambda: found.append(OutputCache(facts, CPU).get(source()))) == 5
    assert right(found[0])


def test_a_pass_that_is_broken_off_is_begun_anew(facts: RunFacts) -> None:
    def stop_at_the_third_batch(_model: Model, pixels: Tensor, _labels: Tensor) -> Tensor:
        if Counted.asked == 3:
            raise KeyboardInterrupt
        return pixels.float()

    with pytest.raises(KeyboardInterrupt):
        OutputCache(facts, CPU).get(source()._replace(change=stop_at_the_third_batch))
    assert len(files(facts)) == 1
    assert asked_by(lambda: OutputCache(facts, CPU).get(source())) == 5
    assert right(OutputCache(facts, CPU).get(source()))


def test_without_a_cache_nothing_is_used_and_nothing_stays(facts: RunFacts, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    OutputCache(facts, CPU).get(source())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with OutputCache(facts, CPU, keep=False) as passing:
        found: list[StoredOutputs] = []
        assert asked_by(lambda: found.append(passing.get(source()))) == 5
        assert right(found[0])
        assert asked_by(lambda: passing.get(source())) == 0, "once while it is open"
        assert not found[0].paths[0].is_relative_to(facts.path)
    with suppress(KeyboardInterrupt), OutputCache(facts, CPU, keep=False) as passing:
        passing.get(source())
        raise KeyboardInterrupt
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_draws_do_not_depend_on_what_was_drawn_before(facts: RunFacts) -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with OutputCache(facts, CPU, keep=False) as passing:
            passing.get(source("other", "other"))
            found.append(passing.get(source()).whole().own["draw"])
    assert torch.equal(*found)


def test_a_change_of_the_images_goes_between_them_and_the_model(facts: RunFacts) -> None:
    def ones(_model: Model, pixels: Tensor, labels: Tensor) -> Tensor:
        assert pixels.dtype == torch.uint8
        return torch.ones(pixels.shape) * labels.view(-1, 1, 1, 1)

    whole = OutputCache(facts, CPU).get(source()._replace(change=ones)).whole()
    assert torch.equal(whole.features, (torch.arange(230) % 2).view(-1, 1).expand(-1, 4).float())


def test_seconds_are_those_of_the_model_and_not_of_loading(facts: RunFacts) -> None:
    def slow() -> MemorySet:
        time.sleep(0.5)
        return images()

    assert OutputCache(facts, CPU).get(ImageSource("test", "slow", slow)).seconds < 0.4


def test_two_at_once_compute_only_once(facts: RunFacts) -> None:
    loads: list[int] = []

    def slow() -> MemorySet:
        loads.append(1)
        time.sleep(0.2)
        return images()

    def get(_: int) -> bool:
        return right(OutputCache(facts, CPU).get(ImageSource("test", "slow", slow)))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(get, range(3))) == [True, True, True]
    assert len(loads) == 1


def test_images_of_another_shape_are_refused(facts: RunFacts) -> None:
    pixels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    wide = ImageSource("wide", "", lambda: MemorySet("wide", CLASSES, pixels, torch.zeros(4, dtype=torch.int64)))
    with pytest.raises(DsuiError, match=r"wide has images of \(3, 8, 8\) and .*run was trained on \(1, 2, 2\)"):
        OutputCache(facts, CPU).get(wide)
    with pytest.raises(DsuiError, match="holds no image"):
        OutputCache(facts, CPU).get(source(count=0))


@pytest.mark.parametrize("name", ["folder:/a b/[ü]*?", "x" * 300, "../../escape"])
def test_any_name_makes_a_file_in_the_runs_own_folder(facts: RunFacts, name: str) -> None:
    stored = OutputCache(facts, CPU).get(source(name=name))
    assert {path.parent for path in stored.paths} == {facts.path / "outputs"}
    assert asked_by(lambda: OutputCache(facts, CPU).get(source(name=name))) == 0
    with safe_open(stored.paths[0], "pt") as content:
        assert content.metadata()["set"] == name


def test_a_folder_that_cannot_be_made_is_one_sentence(facts: RunFacts) -> None:
    (facts.path / "outputs").write_text("a file where the folder should be")
    with pytest.raises(
        DsuiError, match=r"outputs cannot be written \(File exists\); remove the cause, or choose --no-cache\."
    ):
        OutputCache(facts, CPU).get(source())
    with OutputCache(facts, CPU, keep=False) as passing:
        assert right(passing.get(source()))


@pytest.mark.parametrize("full_at", [0, 1, 2])
def test_no_chunk_that_could_not_be_written_goes_unnoticed(
    facts: RunFacts, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    rename = Path.replace

    def until_full(path: Path, target: Path) -> Path:
        if f"-{full_at:05d}." in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", until_full)
    with pytest.raises(DsuiError, match=rf"{full_at:05d}\.safetensors cannot be written \(No space left on device\)"):
        OutputCache(facts, CPU).get(source())


def test_whoever_may_read_a_run_may_read_its_outputs(facts: RunFacts) -> None:
    former = os.umask(0o027)
    try:
        stored = OutputCache(facts, CPU).get(source())
    finally:
        os.umask(former)
    assert {path.stat().st_mode & 0o777 for path in stored.paths} == {0o640}


def test_a_full_disk_is_one_sentence_and_leaves_no_half_chunk(facts: RunFacts) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(DsuiError, match=r"00000\.safetensors cannot be written \(.*large.*\); remove the cause"):
            OutputCache(facts, CPU).get(source())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(facts) == []
    assert [path.name for path in (facts.path / "outputs").iterdir()] == [".lock"]


WIDTH, FEW, MANY = 256, 20_000, 200_000
PROGRAM = f"""
import json, resource, sys, tempfile, torch
from pathlib import Path
from dsui.data.augment import Transform
from dsui.data.dataset import MemorySet
from dsui.evaluation import cache as module
from dsui.evaluation.cache import OutputCache, ImageSource
from dsui.runs.model import Model, RunFacts
from dsui.outputs import Outputs
from dsui.scores import all_scores, reference
from dsui.host_memory import keep_freed_memory
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from types import SimpleNamespace

torch.set_num_threads(1)
if sys.argv[2] == "command":
    keep_freed_memory()

def predict(images):
    features = images.flatten(1).mean(1, keepdim=True) + torch.linspace(0, 1, {WIDTH})
    return Outputs(features, features[:, :10])

method = SimpleNamespace(passes=1, predict=predict)
module.load_model = lambda facts, device: Model(facts, method, Transform(), device)
run = Path(sys.argv[1])
(run / "model.safetensors").write_bytes(b"weights")
config = RunConfig(
    data="digits", backbone="small", method="msp", seed=0, size=1, channels=1, recipe=load_recipe("demo", "digits")
)
cache = OutputCache(RunFacts(run, config, ("a",)), torch.device("cpu"))

def peak(count):
    pixels = torch.arange(count).remainder(256).to(torch.uint8).view(-1, 1, 1, 1)
    images = MemorySet("plain", ("a",), pixels, torch.zeros(count, dtype=torch.int64))
    stored = cache.get(ImageSource("plain", str(count), lambda: images))
    training = reference(stored.chunks())
    scores = torch.cat([all_scores(chunk, training)["uncertainty"] for chunk in stored.chunks()])
    assert len(scores) == count
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

peak({FEW})
print(json.dumps([peak({FEW} + 1), peak({MANY})]))
"""


@pytest.mark.parametrize("caller", ["library", "command"])
def test_peak_memory_does_not_grow_with_the_number_of_images(tmp_path: Path, caller: str) -> None:
    """From two chunks to twenty; all outputs together would be 200 MB more. Commands keep the memory that they free."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), caller], capture_output=True, text=True, check=True
    )
    few, many = json.loads(run.stdout)
    written = sum(path.stat().st_size for path in (tmp_path / "outputs").glob("*.safetensors"))
    assert written > 4 * MANY * WIDTH
    per_image = 8 * 8  # bytes: pixel, label, and a handful of float64 scores
    assert many - few < per_image * MANY + 20e6  # of 205 MB; the rest is the allocator's


def test_a_default_that_changes_makes_older_outputs_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = OutputCache(run_facts(digit_runs.run()), digit_runs.CPU)
    source = ImageSource("set", "identity", lambda: None)  # type: ignore[arg-type, return-value]
    before = cache._names(source)
    monkeypatch.setattr("dsui.evaluation.cache.effective_options", lambda *_: {"samples": 51})
    assert cache._names(source) != before
    monkeypatch.undo()
    for name in ("DEFINITION", "LAYOUT"):
        monkeypatch.setattr(f"dsui.evaluation.cache.{name}", 0)
        assert cache._names(source) != before, name
        monkeypatch.undo()


def test_weights_that_are_replaced_before_they_are_read_are_not_taken_for_those_of_the_key(facts: RunFacts) -> None:
    cache = OutputCache(facts, CPU)
    path = facts.path / "model.safetensors"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(RunError, match="replaced in the meantime; run this again"):
        cache.get(source())
    assert list(cache.folder.glob("*.safetensors")) == []


def test_sets_that_wait_to_be_read_are_not_waited_for_when_one_cannot_be(facts: RunFacts) -> None:
    read: list[str] = []

    def slow(name: str) -> Callable[[], MemorySet]:
        def load() -> MemorySet:
            read.append(name)
            time.sleep(0.3)
            return images()

        return load

    asked = OutputCache(facts, CPU).read_ahead([ImageSource(name, "", slow(name)) for name in "abc"])
    next(asked)
    asked.close()  # type: ignore[attr-defined]
    time.sleep(0.7)
    assert read == ["a"]


def test_each_chunk_is_read_once_to_check_it(facts: RunFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    OutputCache(facts, CPU).get(source())
    checked: list[Path] = []
    monkeypatch.setattr("dsui.evaluation.cache.check_seal", checked.append)
    again = OutputCache(facts, CPU)
    found = [again.get(source()) for _ in range(3)]
    assert checked == list(found[0].paths)


def test_outputs_of_a_run_that_may_only_be_read_are_used_and_new_ones_not_kept(
    facts: RunFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OutputCache(facts, CPU).get(source())
    before = sorted(facts.path.rglob("*"))

    def refused(path: Path) -> object:
        if path.is_relative_to(facts.path):  # the mode of a folder does not bind a superuser
            raise OSError(errno.EROFS, "Read-only file system")
        return wait_for_lock(path)

    monkeypatch.setattr("dsui.evaluation.cache.wait_for_lock", refused)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    with OutputCache(facts, CPU, warn=said.append) as cache:
        assert asked_by(lambda: cache.get(source())) == 0
        assert said == []
        for name in ("other", "third", "other"):
            assert right(cache.get(source(name, name)))
    assert said == [
        f"{facts.path / 'outputs'} cannot be written to (Read-only file system), so the outputs are not kept."
    ]
    assert sorted(facts.path.rglob("*")) == before


def test_what_a_killed_process_left_of_a_chunk_is_removed(facts: RunFacts) -> None:
    (facts.path / "outputs").mkdir()
    left = facts.path / "outputs" / "svhn-0123456789ab-00000.safetensors.part"
    left.write_bytes(b"half")
    OutputCache(facts, CPU).get(source())
    assert not left.exists()
