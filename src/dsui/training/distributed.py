"""Several processes as one trainer, under torchrun: who am I, and how do we meet?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed


@dataclass(frozen=True)
class World:
    """This process among `size`; only the `leader` writes files and prints."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def leader(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        if self.size > 1:
            distributed.barrier()


@contextmanager
def joined(device_type: str) -> Iterator[World]:
    """The world that torchrun describes in the environment; alone without it. nccl on GPUs, gloo on CPUs."""
    if "WORLD_SIZE" not in os.environ:
        yield World()
        return
    world = World(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"]))
    if device_type == "cuda":
        torch.cuda.set_device(world.local_rank)
    distributed.init_process_group("nccl" if device_type == "cuda" else "gloo")
    try:
        yield world
    finally:
        distributed.destroy_process_group()
