"""Several processes as one trainer, under torchrun: this process's place among them, and how they meet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import distributed
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from dsui.errors import DsuiError

DESCRIPTION = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""The environment variables in which torchrun describes a process."""


@dataclass(frozen=True)
class World:
    """This process among `size` of them; only the `leader` writes files and prints."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def leader(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        if self.size > 1:
            distributed.barrier()

    def of_leader(self, value: float, device: torch.device) -> float:
        """The leader's value, in every process."""
        if self.size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.broadcast(shared, 0)
        return float(shared)


@contextmanager
def joined(device_type: str) -> Iterator[World]:
    """The world that torchrun describes in the environment, or this process alone. nccl on GPUs, gloo on CPUs."""
    if os.environ.get("WORLD_SIZE", "1") == "1" and "RANK" not in os.environ:
        yield World()
        return
    if missing := [name for name in DESCRIPTION if name not in os.environ]:
        raise DsuiError(
            f"the environment describes a distributed job without {', '.join(missing)}; start it with torchrun, "
            "or unset WORLD_SIZE and RANK."
        )
    world = World(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    if device_type == "cuda":
        torch.cuda.set_device(world.local_rank)
    backend = "nccl" if device_type == "cuda" else "gloo"
    _import_before_the_group()
    kept_by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _store(world, keeps=world.leader and not kept_by_torchrun)
    distributed.init_process_group(backend, store=store, rank=world.rank, world_size=world.size)
    try:
        yield world
    finally:
        distributed.destroy_process_group()


def _import_before_the_group() -> None:
    """Import `torch.distributed.nn.functional` before there is a group, so that the group can end.

    If it is imported later, as DistributedDataParallel does, its functions' default arguments hold the group for ever,
    and destroying it leaves its threads running (seen with PyTorch 2.13). A thread of gloo that drops a tensor while
    the interpreter ends aborts the process: "terminate called without an active exception".
    """
    import_module("torch.distributed.nn.functional")


def connect(world: World) -> Store:
    """A connection of its own, for another thread, to the store of the job that this process has joined."""
    return _store(world, keeps=False, waits=False)


def _store(world: World, keeps: bool, waits: bool = True) -> Store:
    """Where processes leave their addresses for each other; a new one for each restart.

    This process `keeps` it for all, and `waits` until all are there.

    torchrun keeps one store over all restarts. Without a prefix for each, a restarted process would read the address
    that a dead one left there (seen with PyTorch 2.13 and gloo).
    """
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world.size,
        is_master=keeps,
        wait_for_workers=waits,
    )
    return PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
