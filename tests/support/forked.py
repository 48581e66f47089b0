"""Processes forked from one that has loaded PyTorch and dsui already, which takes longer than what tests do in them.

They share nothing else with the tests or each other: each may be killed, join a group, or use a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import start_processes

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["torch._dynamo", "torch.distributed", "scipy.stats", "dsui.cli", "dsui.training.loop", "dsui.evaluation.evaluate"]
)


def two_processes(work: Callable[..., None], *arguments: Any) -> None:
    """Call `work(rank, *arguments)` in both, and raise what either raised."""
    start_processes(work, arguments, nprocs=2, start_method="forkserver")


def command(*words: str, out: Path | None = None) -> BaseProcess:
    """The command `dsui` with these words, begun in the working folder on one thread; what it prints goes to the files
    `stdout` and `stderr` in the folder `out`."""
    process = FORKED.Process(target=_run, args=(words, Path.cwd(), out))
    process.start()
    return process


def _run(words: tuple[str, ...], working: Path, out: Path | None) -> None:
    from dsui.__main__ import main

    os.chdir(working)
    if out is not None:
        for stream, number in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(out / stream, os.O_WRONLY | os.O_CREAT, 0o600), number)
    torch.set_num_threads(1)
    sys.argv = ["dsui", *words]
    main()
