"""Shared by the benchmarks: their command line, and a clock for steps that run on a device."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch


def command(description: str | None) -> argparse.ArgumentParser:
    """A parser with `--out`; a benchmark may add its own options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this file")
    return parser


def show(report: Callable[[], str], out: Path | None) -> None:
    text = report()
    print(text)
    if out:
        out.write_text(text)


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
