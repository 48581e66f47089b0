"""Training steps per second: dsui's step against an ordinary loop with a DataLoader, and a plain linear head.

    python benchmarks/training.py [--out benchmarks/training-cpu.md]

All steps train the same network on the same 50,000 random images in batches of 256 with Adam. The ordinary loop has a
DataLoader whose workers crop and flip with Pillow (8 workers, or 2 on a machine with fewer than 8 processors), and on a
GPU bfloat16 autocast and channels_last. On a GPU the networks are ResNet18 and VGG16 with the paper's neck. On a CPU it
is the small net, and all steps are timed again with freed memory kept, as in `dsui train`. Times are medians of
interleaved repeats, all in one run. On a GPU a second table shows where the time of a step goes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import measuring
from dsui.benchmarks.clock import machine_name, the_device
from dsui.benchmarks.steps import (
    BATCH,
    CLASSES,
    IMAGES,
    dsui_steps,
    dsui_trainer,
    measured,
    ordinary_steps,
    random_images,
    usual_network,
)
from dsui.data.dataset import MemorySet
from dsui.host_memory import keep_freed_memory
from dsui.recipe import Recipe
from dsui.training.step import Mode, own_stream
from dsui.training.trainer import Trainer

ORDINARY, LINEAR = "ordinary loop, DataLoader", "linear head"
EAGER, GRAPH, COMPILED = "dsui, eager", "dsui, one CUDA graph", "dsui, compiled and one CUDA graph"
DETERMINISTIC = "dsui, one CUDA graph, deterministic"
MODES: dict[str, Mode] = {EAGER: "eager", GRAPH: "graph", COMPILED: "compiled"}
KINDS = {  # a kernel belongs to the first kind that has a part of its name
    "batch norm": ("bn_fw", "bn_bw", "batch_norm", "batchnorm", "cudnn_bn"),
    "optimizer": ("multi_tensor", "fused_adam", "adam"),
    "convolution": ("conv", "fprop", "dgrad", "wgrad", "implicit", "cutlass__5x_cudnn", "xmma"),
    "matrix product": ("gemm", "nvjet", "cutlass", "splitk"),
    "pooling and reductions": ("pool", "reduce"),
    "copies and casts": ("memcpy", "memset", "copy", "cat"),
    "elementwise": ("elementwise", "vectorized", "triton"),
}


def deterministic_steps(images: MemorySet, backbone: str, recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Steps as in `dsui train --deterministic`: a graph keeps the kernels that were chosen when it was captured."""
    with_trials = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    steps = dsui_steps(dsui_trainer(images, backbone, recipe, device, "graph"))
    next(steps)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = with_trials
    return steps


def kernels(steps: Iterator[None]) -> tuple[dict[str, int], dict[str, float]]:
    """Launches and milliseconds of one captured step by kind of kernel."""
    for _ in range(5):
        next(steps)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            next(steps)
        torch.cuda.synchronize()
    spent = dict.fromkeys((*KINDS, "other"), 0.0)
    launches = dict.fromkeys(spent, 0)
    for event in found.key_averages():
        name = event.key.lower()
        kind = next((kind for kind, signs in KINDS.items() if any(sign in name for sign in signs)), "other")
        spent[kind] += event.self_device_time_total / 5000
        launches[kind] += event.count // 5
    return launches, spent


def kernel_table(trainer: Trainer, steps: Iterator[None], linear: Iterator[None], total: float) -> list[str]:
    """Where the time of a captured step goes, compared with the same step with a linear head."""
    (launches, spent), (linear_launches, linear_spent) = kernels(steps), kernels(linear)
    flops, limit = step_flops(trainer), card_limit(trainer.device)
    return [
        "",
        f"Where a captured step of {trainer.config.backbone} spends its {total:.2f} ms (profiled). Its products and "
        f"convolutions, {flops / 1e9:,.0f} GFLOP, run at {flops / total / 1e9:.0f} TFLOP/s over the whole step, "
        f"{100 * flops / total / 1e9 / limit:.0f} % of the {limit:.0f} that one large bfloat16 product reaches here:",
        "",
        "| kernels | launches | ms | share | launches, linear head | ms, linear head |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {kind} | {launches[kind]} | {spent[kind]:.2f} | {100 * spent[kind] / sum(spent.values()):.0f} % "
            f"| {linear_launches[kind]} | {linear_spent[kind]:.2f} |"
            for kind in sorted(spent, key=lambda kind: -spent[kind])
            if launches[kind]
        ),
    ]


def step_flops(trainer: Trainer) -> float:
    config = trainer.config
    images = torch.zeros(BATCH, config.channels, config.size, config.size, device=trainer.device)
    with FlopCounterMode(display=False) as counter:
        output = trainer.method(images)
        trainer.method.loss(output, torch.zeros(BATCH, dtype=torch.int64, device=trainer.device)).backward()
    return float(counter.get_total_flops())


def card_limit(device: torch.device, side: int = 8192) -> float:
    """TFLOP/s of one large bfloat16 product."""
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        left @ right
    torch.cuda.synchronize()
    return 20 * 2 * side**3 / (time.perf_counter() - start) / 1e12


def compare(
    images: MemorySet, backbone: str, recipe: Recipe, device: torch.device, workers: int, repeats: int
) -> list[str]:
    on_gpu = device.type == "cuda"
    own = (GRAPH, COMPILED) if on_gpu else (EAGER,)
    trainers = {}
    for name in dict.fromkeys((*own, EAGER)):
        trainers[name] = dsui_trainer(images, backbone, recipe, device, MODES[name])
        if name in own:
            trainers[f"{name}, {LINEAR}"] = dsui_trainer(images, backbone, recipe, device, MODES[name], "msp")
    ways = {name: dsui_steps(trainer) for name, trainer in trainers.items()}
    if on_gpu:
        ways[DETERMINISTIC] = deterministic_steps(images, backbone, recipe, device)
    ways[f"{ORDINARY}, {workers} workers"] = ordinary_steps(images, backbone, recipe, device, workers)
    counts = {name: 150 if "CUDA graph" in name else 40 if on_gpu else 10 for name in ways}
    timing = measured(ways, counts, repeats, device)
    slowest = timing[f"{ORDINARY}, {workers} workers"]
    lines = [
        "",
        f"## {backbone}, {images.shape[0]}x{images.shape[1]}x{images.shape[2]}, {recipe.name} recipe",
        "",
        "| step | ms | images/s | times the ordinary loop |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {value:.2f} | {1000 * BATCH / value:,.0f} | {slowest / value:.1f} |"
            for name, value in timing.items()
        ),
    ]
    costs = ", ".join(f"{timing[name] / timing[f'{name}, {LINEAR}']:.3f} ({name})" for name in own)
    lines += ["", f"Cost against the same step with a linear head: {costs}."]
    if not on_gpu and keep_freed_memory():
        kept = measured(ways, counts, repeats, device)
        faster = ", ".join(f"{timing[name] / value:.2f} ({name}: {value:.2f} ms)" for name, value in kept.items())
        lines += ["", f"Times as fast with freed memory kept, as in `dsui train`: {faster}."]
    if on_gpu:
        lines[-1] += f" Cost of `--deterministic`: {timing[DETERMINISTIC] / timing[GRAPH]:.2f}."
    if on_gpu:
        lines += kernel_table(trainers[GRAPH], ways[GRAPH], ways[f"{GRAPH}, {LINEAR}"], timing[GRAPH])
    return lines


def report() -> str:
    device = the_device()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required for deterministic products
    processors = os.cpu_count() or 1
    workers = 8 if processors >= 8 else 2
    torch.backends.cudnn.benchmark = True
    machine = machine_name()
    lines = [
        f"# Training steps: {machine}, {processors} processors",
        "",
        f"torch {torch.__version__}; {IMAGES:,} random images, {CLASSES} classes, batches of {BATCH}; medians of "
        "interleaved repeats. Generated by `python benchmarks/training.py`.",
    ]
    images = random_images()
    backbone, recipe = usual_network(device)
    if device.type == "cuda":
        for each in (backbone, "vgg16"):
            lines += compare(images, each, recipe, device, workers, repeats=3)
            torch.cuda.empty_cache()
    else:
        lines += compare(images, backbone, recipe, device, workers, repeats=5)
    return "\n".join(lines) + "\n"


def main() -> None:
    options = measuring.command(__doc__).parse_args()
    with own_stream(the_device()):
        measuring.show(report, options.out)


if __name__ == "__main__":
    main()
