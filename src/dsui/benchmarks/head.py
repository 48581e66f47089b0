"""Time of the mixture's log-density, forward and backward, against two other implementations.

Each computes ln GMM_i(z) for every sample and class, [B, C], and the gradients of z, means, log-variances and mixing
logits. `dsui` is `dsui.density`; `MixtureSameFamily` is torch.distributions; `broadcast` forms (z - mu)^2 / b as a
[B, C, K, M] tensor.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch import distributions as dist

from dsui.density import gaussian_log_prob, mixture_log_prob

FEATURES, COMPONENTS = 2048, 8
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


def median_seconds(batch: int, classes: int, device: str, repeats: int) -> dict[str, float]:
    """Medians in seconds; nan for an implementation that runs out of memory."""
    tensors = inputs(batch, classes, device)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(repeats + 1):
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
