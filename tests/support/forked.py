"""Processes forked from one that has loaded PyTorch and dsui already, which takes longer than what tests do in them.

They share nothing else with the tests or each other: each may be killed, join a group, or use a GPU.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch.multiprocessing.spawn import start_processes

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["torch._dynamo", "torch.distributed", "dsui.cli.train", "dsui.training.loop"])


def two_processes(work: Callable[..., None], *arguments: Any) -> None:
    """Call `work(rank, *arguments)` in both, and raise what either raised."""
    start_processes(work, arguments, nprocs=2, start_method="forkserver")


def command(*words: str) -> BaseProcess:
    """The command `dsui` with these words, begun, on one thread."""
    process = FORKED.Process(target=_run, args=(words,))
    process.start()
    return process


def _run(words: tuple[str, ...]) -> None:
    from dsui.__main__ import main

    torch.set_num_threads(1)
    sys.argv = ["dsui", *words]
    main()
