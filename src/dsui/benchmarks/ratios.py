"""Ratios of speed on this machine: dsui's head, training step and evaluation against the usual ways, in the same run.

Ratios carry over from machine to machine, milliseconds do not. The committed ones, of benchmarks/*.md, are shipped in
`committed.json`. `quick` measures smaller sets and fewer repeats than they did, so its ratios are rougher.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from dsui.benchmarks import evaluation, head, steps
from dsui.benchmarks.clock import the_device
from dsui.progress import Progress, silent
from dsui.training.step import Mode, own_stream

DATA_WORKERS, PROCESSORS_FOR_THEM = (2, 8), 8
"""Workers of the ordinary loop: the second where the machine has as many processors."""


class Ratio(NamedTuple):
    """`here` and what is committed, None where the committed run has no such figure."""

    key: str
    """As in `committed.json`."""
    what: str
    here: float
    committed: float | None
    higher_is_better: bool


class Committed(NamedTuple):
    """The machine, and its ratios by key."""

    machine: str
    ratios: dict[str, float]


def committed(device: torch.device) -> Committed:
    """Those of the machine that is like this one: an H200, or two x86 processors."""
    shipped = json.loads(resources.files("dsui.benchmarks").joinpath("committed.json").read_text(encoding="utf-8"))
    return Committed(**shipped[device.type])


def head_ratios(device: torch.device, quick: bool) -> Iterator[tuple[str, float]]:
    """How many times faster the head is, forward and backward, than two other implementations."""
    for classes in (10, 100):
        took = head.median_seconds(64 if device.type == "cpu" else 256, classes, device.type, 2 if quick else 5)
        for name in ("MixtureSameFamily", "broadcast"):
            yield f"head, {classes} classes, against {name}", took[name] / took["dsui"]


def step_ratios(device: torch.device, quick: bool) -> Iterator[tuple[str, float]]:
    """How many times faster a training step is than in an ordinary loop, and what the head costs in it."""
    on_gpu = device.type == "cuda"
    backbone, recipe = steps.usual_network(device)
    images, mode = steps.random_images(), GRAPH if on_gpu else EAGER
    workers = DATA_WORKERS[(os.cpu_count() or 1) >= PROCESSORS_FOR_THEM]
    with own_stream(device):
        trainers = [steps.dsui_trainer(images, backbone, recipe, device, mode, method) for method in ("dsui", "msp")]
        own, linear = (steps.dsui_steps(trainer) for trainer in trainers)
        ordinary = steps.ordinary_steps(images, backbone, recipe, device, workers)
        ways = {"own": own, "linear": linear, "ordinary": ordinary}
        count = 40 if on_gpu else 10
        took = steps.measured(ways, dict.fromkeys(ways, count), 2 if quick else 5, device)
    yield "step against an ordinary loop", took["ordinary"] / took["own"]
    yield "step against the same with a linear head", took["own"] / took["linear"]


def evaluation_ratios(device: torch.device, quick: bool) -> Iterator[tuple[str, float]]:
    """How many times faster 14 detectors are evaluated than with a pass of the network for each."""
    setting = evaluation.SETTINGS[device.type]
    if quick:
        setting = replace(setting, training=setting.training // 2, test=setting.test // 2)
    took = evaluation.measure(setting, device, 1 if quick else 3).seconds
    again = took[evaluation.AGAIN]
    yield "evaluation in one pass", again / took[evaluation.ONCE]
    yield "evaluation from the cache", again / took[evaluation.CACHED]


def serving_ratios(_: torch.device, quick: bool) -> Iterator[tuple[str, float]]:
    """What share of a bare ONNX Runtime loop's images `dsui serve` answers, for a small network, on the processor."""
    from dsui.benchmarks import serving

    with TemporaryDirectory() as name:
        folder = Path(name)
        serving.write_body(folder / "body.png")
        model = serving.export_untrained("small", folder)
        bare = serving.BareLoop(model)
        with serving.served(model) as server:
            found = serving.measure(server, bare, folder / "body.png", 64, 1 if quick else serving.REPEATS)
    yield "serving 64 clients, against bare ONNX Runtime", found.served / found.bare


GRAPH: Mode = "graph"
EAGER: Mode = "eager"
BENCHMARKS: dict[str, Callable[[torch.device, bool], Iterator[tuple[str, float]]]] = {
    "head": head_ratios,
    "step": step_ratios,
    "evaluation": evaluation_ratios,
    "serving": serving_ratios,
}
LOWER_IS_BETTER = {"step against the same with a linear head"}


def measure(names: list[str], quick: bool, progress: Progress = silent) -> list[Ratio]:
    """The ratios of some benchmarks, on the GPU if there is one."""
    device = the_device()
    known = committed(device).ratios
    found = []
    for done, name in enumerate(names):
        progress(f"measuring {name}", done, len(names))
        for key, value in BENCHMARKS[name](device, quick):
            found.append(Ratio(key, name, value, known.get(key), key not in LOWER_IS_BETTER))
    return found
