"""A clock for steps that run on a device, and what machine that is."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator

import torch


def machine_name() -> str:
    """The GPU, or the processor's architecture."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else platform.machine()


def the_device() -> torch.device:
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def seconds_each(steps: Iterator[object], count: int, device: torch.device, pause: float) -> float:
    """Seconds per step over `count` steps, including work on the device. The pause lets other workers finish first."""
    time.sleep(pause)
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        next(steps)
    _wait(device)
    return (time.perf_counter() - start) / count


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
