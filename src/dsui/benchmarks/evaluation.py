"""Time to evaluate post-hoc detectors: one pass with cached outputs (dsui) against one network pass for each detector.

The loop fits and runs one detector after the other, like libraries whose detectors wrap a model. Each detector that is
fitted runs the network over the training images, and each runs it over the in-domain images and every foreign set.
dsui runs the network once over each set, writes the outputs to disk, and computes every score from there. Both use the
same network, batches, detectors and metrics, with images on the device. dsui's time includes its own scores, which the
loop does not compute. Weights are untrained and images random, because only time is measured.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.pipeline import ResidentLoader, plain_batches
from dsui.detectors import registry
from dsui.evaluation.cache import BATCH, ImageSource, OutputCache
from dsui.evaluation.metrics import ranking_metrics, ties
from dsui.evaluation.sources import ImageSources
from dsui.evaluation.tasks import Evaluation
from dsui.methods.registry import build
from dsui.outputs import Outputs
from dsui.runs.config import RunConfig
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import Model, RunFacts, load_model, run_facts
from dsui.runs.recipe_file import load_recipe
from dsui.runs.weights import save_weights

AGAIN, ONCE, CACHED = "network again for each detector and set", "dsui, one pass", "dsui again, from the cache"
OWN = "dsui's own scores alone, from the cache"
CLASSES, FOREIGN = 10, ("first", "second", "third")
DETECTORS = tuple(name for name in registry.names() if name != "odin")
"""Those that need outputs alone: ODIN runs the network on inputs of its own in either way."""
Figures = dict[tuple[str, str], float]
"""AUROC by detector and foreign set."""


@dataclass(frozen=True)
class Setting:
    backbone: str
    recipe: str
    shape: tuple[int, int, int]
    training: int
    test: int


SETTINGS = {
    "cuda": Setting("resnet18", "modern", (3, 32, 32), 50_000, 10_000),
    "cpu": Setting("small", "demo", (1, 28, 28), 2_000, 1_000),
}


class Timing(NamedTuple):
    images: int
    """The number of images that went through the network."""
    seconds: float
    figures: Figures


class RandomSources(ImageSources):
    """Sets of random images in memory, in place of a run's data."""

    def __init__(self, facts: RunFacts, sets: dict[str, MemorySet]) -> None:
        super().__init__(facts.config, facts.classes)
        self.sets = sets

    def training(self) -> ImageSource:
        return ImageSource("train", "random", lambda: self.sets["train"])

    def own(self) -> ImageSource:
        return ImageSource("test", "random", lambda: self.sets["test"])

    def foreign(self, name: str) -> ImageSource:
        return ImageSource(name, "random", lambda: self.sets[name])


def random_sets(setting: Setting) -> dict[str, MemorySet]:
    generator = torch.Generator().manual_seed(0)
    sizes = {"train": setting.training} | dict.fromkeys(("test", *FOREIGN), setting.test)
    names = tuple(f"class {label}" for label in range(CLASSES))
    return {
        name: MemorySet(
            name,
            names,
            torch.randint(0, 256, (count, *setting.shape), dtype=torch.uint8, generator=generator),
            torch.arange(count) % CLASSES,
        )
        for name, count in sizes.items()
    }


def untrained_run(folder: Path, setting: Setting) -> RunFacts:
    """Write a run folder as training would."""
    recipe = load_recipe(setting.recipe, "cifar10")
    channels, size, _ = setting.shape
    config = RunConfig(
        data="random", backbone=setting.backbone, method="msp", seed=0, size=size, channels=channels, recipe=recipe
    )
    torch.manual_seed(0)
    method = build("msp", setting.backbone, channels, CLASSES, recipe)
    metadata = {"config": json.dumps(config.mapping()), "classes": json.dumps([str(each) for each in range(CLASSES)])}
    save_weights(folder / WEIGHTS, method.state_dict(), metadata)
    return run_facts(folder)


@torch.no_grad()
def through_network(model: Model, source: ResidentLoader) -> Outputs:
    parts = []
    for batch in source.stream(plain_batches(len(source.labels), BATCH)):
        inputs = model.transform.plain(batch.images)
        if model.device.type == "cuda":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        outputs = model.method.predict(inputs)
        parts.append(Outputs.of({**outputs.tensors(), "labels": batch.labels}))
    return Outputs.concatenated(parts)


def metrics_of(own: Tensor, foreign: Tensor) -> dict[str, float]:
    joined = torch.cat([own, foreign])
    positive = torch.arange(len(joined), device=joined.device) >= len(own)
    return {**ranking_metrics(joined, positive), "ties": ties(joined)}


def loop(model: Model, sets: dict[str, MemorySet]) -> Timing:
    """Evaluate one detector after the other, each with its own passes."""
    sources = {name: ResidentLoader(images, model.device) for name, images in sets.items()}
    seen, figures = 0, {}
    synchronise(model.device)
    began = time.perf_counter()
    for name in DETECTORS:
        detector = registry.build(name)
        if detector.needs_fit:
            detector.fit(through_network(model, sources["train"]))
            seen += len(sets["train"].labels)
        own = detector.score(through_network(model, sources["test"]))
        for foreign in FOREIGN:
            theirs = detector.score(through_network(model, sources[foreign]))
            figures[name, foreign] = metrics_of(own, theirs)["auroc"]
        seen += (1 + len(FOREIGN)) * len(own)
    synchronise(model.device)
    return Timing(seen, time.perf_counter() - began, figures)


def dsui(facts: RunFacts, sets: dict[str, MemorySet], device: torch.device, detectors: tuple[str, ...]) -> Timing:
    """Do what `dsui evaluate --tasks ood --detectors all` does, with an empty or a full cache."""
    seen = 0

    def count(_name: str, done: int, total: int | None) -> None:
        nonlocal seen
        seen += total if done == total else 0

    synchronise(device)
    began = time.perf_counter()
    with OutputCache(facts, device) as cache:
        evaluation = Evaluation(cache, RandomSources(facts, sets), detectors, count)
        rows = list(evaluation.rows("ood", FOREIGN))
    synchronise(device)
    seconds = time.perf_counter() - began
    return Timing(seen, seconds, {(str(row.score), str(row.foreign)): row.metrics["auroc"] for row in rows})


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def disagreement(found: Figures, expected: Figures) -> float:
    """The largest difference between two AUROCs."""
    return max(abs(found[name.replace("-", "_"), foreign] - value) for (name, foreign), value in expected.items())


class Measured(NamedTuple):
    """Medians in seconds and images through the network by way, and how far the AUROCs of two ways are apart."""

    seconds: dict[str, float]
    images: dict[str, int]
    apart: float


def measure(setting: Setting, device: torch.device, repeats: int) -> Measured:
    """Every way in turns; the first turn is a warm-up."""
    sets = random_sets(setting)
    timings: dict[str, list[Timing]] = {AGAIN: [], ONCE: [], CACHED: [], OWN: []}
    for repeat in range(repeats + 1):
        with tempfile.TemporaryDirectory() as folder:
            facts = untrained_run(Path(folder), setting)
            found = {
                AGAIN: loop(load_model(facts, device), sets),
                ONCE: dsui(facts, sets, device, DETECTORS),
                CACHED: dsui(facts, sets, device, DETECTORS),
                OWN: dsui(facts, sets, device, ()),
            }
        for name, timing in found.items() if repeat else ():
            timings[name].append(timing)
    apart = disagreement(timings[ONCE][0].figures, timings[AGAIN][0].figures)
    medians = {name: statistics.median(each.seconds for each in found) for name, found in timings.items()}
    return Measured(medians, {name: found[0].images for name, found in timings.items()}, apart)
