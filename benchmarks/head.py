"""Time and peak memory of the mixture's log-density, forward and backward, against two other implementations.

    python benchmarks/head.py [--out benchmarks/head-cpu.md]

Each implementation computes ln GMM_i(z) for every sample and class, [B, C], and the gradients of z, means,
log-variances and mixing logits. `dsui` is `dsui.density`; `MixtureSameFamily` is torch.distributions; `broadcast` forms
(z - mu)^2 / b as a [B, C, K, M] tensor. On a GPU a second table compares dsui, replayed as a CUDA
graph, with the six float32 products it consists of, with TF32 off in both. All figures of a table are from one run:
medians of interleaved repeats.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch import distributions as dist

import measuring
from dsui.density import gaussian_log_prob, mixture_log_prob

FEATURES, COMPONENTS = 2048, 8
CLASSES = (10, 100, 200, 1000)
REPEATS = 5
Way = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def dsui(z: Tensor, means: Tensor, log_variances: Tensor, mixing: Tensor) -> Tensor:
    return mixture_log_prob(gaussian_log_prob(z, means, log_variances), mixing.log_softmax(1))


def same_family(z: Tensor, means: Tensor, log_variances: Tensor, mixing: Tensor) -> Tensor:
    components = dist.Independent(dist.Normal(means, (0.5 * log_variances).exp(), validate_args=False), 1)
    mixture = dist.MixtureSameFamily(dist.Categorical(logits=mixing), components, validate_args=False)
    log_prob: Tensor = mixture.log_prob(z[:, None])
    return log_prob


def broadcast(z: Tensor, means: Tensor, log_variances: Tensor, mixing: Tensor) -> Tensor:
    squared = (z[:, None, None] - means).square() * torch.exp(-log_variances)
    log_prob = -0.5 * (squared + log_variances + math.log(2 * math.pi)).sum(-1)
    return torch.logsumexp(mixing.log_softmax(1) + log_prob, -1)


WAYS: dict[str, Way] = {"dsui": dsui, "MixtureSameFamily": same_family, "broadcast": broadcast}


def inputs(batch: int, classes: int, device: str) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    shape = (classes, COMPONENTS, FEATURES)
    tensors = torch.randn(batch, FEATURES), torch.randn(shape), 0.3 * torch.randn(shape), torch.randn(shape[:2])
    return tuple(t.to(device).requires_grad_() for t in tensors)


def run_once(way: Way, tensors: tuple[Tensor, ...]) -> None:
    for t in tensors:
        t.grad = None
    way(*tensors).sum().backward()


def seconds(way: Way, tensors: tuple[Tensor, ...]) -> float:
    """Seconds per run: one run on the CPU, ten in a row on a GPU, as in training."""
    if not tensors[0].is_cuda:
        start = time.perf_counter()
        run_once(way, tensors)
        return time.perf_counter() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        run_once(way, tensors)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 10


def median_seconds(batch: int, classes: int, device: str) -> dict[str, float]:
    """Medians in seconds; nan for an implementation that runs out of memory."""
    tensors = inputs(batch, classes, device)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(REPEATS + 1):
        for name, way in WAYS.items():
            if not fits(name, batch, classes, device):
                times[name] = [math.nan]
                continue
            taken = seconds(way, tensors)
            if repeat > 0:  # the first is a warm-up
                times[name].append(taken)
    return {name: statistics.median(taken) for name, taken in times.items()}


def fits(name: str, batch: int, classes: int, device: str) -> bool:
    """Whether the eight [B, C, K, M] tensors that the other implementations hold at once fit into memory."""
    if name == "dsui":
        return True
    needed = 8 * 4 * batch * classes * COMPONENTS * FEATURES
    if device == "cuda":
        return needed < torch.cuda.get_device_properties(0).total_memory
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return needed < available


def peak_mib(name: str, batch: int, classes: int, device: str) -> float:
    """Peak memory beyond the inputs. On the CPU a fresh process runs one implementation and reads its maximum."""
    if not fits(name, batch, classes, device):
        return math.nan
    if device == "cuda":
        tensors = inputs(batch, classes, device)
        run_once(WAYS[name], tensors)
        torch.cuda.empty_cache()
        for t in tensors:
            t.grad = None
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run_once(WAYS[name], tensors)
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    command = [sys.executable, __file__, "--peak", name, str(batch), str(classes)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


def print_cpu_peak(name: str, batch: int, classes: int) -> None:
    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    run_once(WAYS[name], inputs(2, 2, "cpu"))
    tensors = inputs(batch, classes, "cpu")
    before = status("VmRSS")
    run_once(WAYS[name], tensors)
    print((status("VmHWM") - before) / 2**10)


def graph_milliseconds(work: Callable[[], None]) -> Callable[[], float]:
    """Capture `work` once; each call then times twenty replays."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def replay() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(20):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 20

    return replay


def graph_ratio(batch: int, classes: int) -> tuple[float, float]:
    """Milliseconds of dsui and of its six bare products, each as one CUDA graph, replayed in turns."""
    torch.set_float32_matmul_precision("highest")
    tensors = inputs(batch, classes, "cuda")
    total = classes * COMPONENTS
    z, square = torch.randn(2, batch, FEATURES, device="cuda")
    first, second = torch.randn(2, total, FEATURES, device="cuda")
    grad = torch.randn(batch, total, device="cuda")

    def products() -> None:
        for left, right in (
            (square, first.T),
            (z, second.T),
            (grad, first),
            (grad, second),
            (grad.T, square),
            (grad.T, z),
        ):
            torch.mm(left, right)

    ours, bare = graph_milliseconds(lambda: run_once(dsui, tensors)), graph_milliseconds(products)
    pairs = [(ours(), bare()) for _ in range(REPEATS)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def table(device: str, batch: int) -> list[str]:
    name = (
        torch.cuda.get_device_name(0)
        if device == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    lines = [
        f"# Mixture head, forward and backward: {name}",
        "",
        f"torch {torch.__version__}, float32, B {batch}, M {FEATURES}, K {COMPONENTS}, median of {REPEATS} interleaved "
        'repeats; "-": more memory than the machine has. Generated by `python benchmarks/head.py`.',
        "",
        "| C | dsui ms | MixtureSameFamily ms | broadcast ms | times faster "
        "| dsui MiB | MixtureSameFamily MiB | broadcast MiB | times less memory |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for classes in CLASSES:
        took = median_seconds(batch, classes, device)
        peak = {way: peak_mib(way, batch, classes, device) for way in WAYS}
        cells = [f"{1e3 * took[way]:.3g}" for way in WAYS]
        cells += [" / ".join(f"{took[way] / took['dsui']:.1f}" for way in list(WAYS)[1:])]
        cells += [f"{peak[way]:.0f}" for way in WAYS]
        cells += [" / ".join(f"{peak[way] / peak['dsui']:.1f}" for way in list(WAYS)[1:])]
        lines.append(f"| {classes} | " + " | ".join(cells).replace("nan", "-") + " |")
        print(lines[-1], flush=True)
    if device == "cuda":
        lines += ["", "As one CUDA graph against its six bare float32 products (TF32 off in both):", ""]
        lines += ["| C | dsui ms | six products ms | ratio |", "|---:|---:|---:|---:|"]
        for classes in CLASSES:
            ours, bare = graph_ratio(batch, classes)
            lines.append(f"| {classes} | {ours:.3f} | {bare:.3f} | {ours / bare:.2f} |")
    return lines


def main() -> None:
    parser = measuring.command(__doc__)
    parser.add_argument("--peak", nargs=3, metavar=("WAY", "B", "C"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_cpu_peak(options.peak[0], int(options.peak[1]), int(options.peak[2]))
        return
    device, batch = ("cuda", 256) if torch.cuda.is_available() else ("cpu", 64)
    measuring.show(lambda: "\n".join(table(device, batch)) + "\n", options.out)


if __name__ == "__main__":
    main()
