"""How a run goes on from its checkpoint, and what its user is told: what has changed, and which checkpoint there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from dsui.errors import RunError
from dsui.runs.folder import FORMER_STATE, STATE, RunFolder
from dsui.training.distributed import World
from dsui.training.trainer import Trainer

PLACE = "place"
"""Key in a checkpoint: on what the run was trained, as far as that decides its last bits."""
LOST_PROCESS = ("Connection closed by peer", "Connection reset by peer", "NCCL", "Broken pipe", "Timed out waiting")
"""Parts of what gloo and nccl say when a process they wait for is gone."""


def place(world: World, device: torch.device) -> dict[str, int | str]:
    """On what a run is trained, as far as that decides the last bits of its weights."""
    facts: dict[str, int | str] = {"processes": world.size, "PyTorch": str(torch.__version__)}
    if device.type == "cuda":
        return {**facts, "device": torch.cuda.get_device_name(device)}
    return {**facts, "device": device.type, "threads": torch.get_num_threads()}


def moved(saved: object, now: dict[str, int | str]) -> str | None:
    """A sentence where the place of a checkpoint is not the present one; earlier checkpoints do not name theirs."""
    known = saved if isinstance(saved, dict) else {}
    changes = [
        f"{name} {known[name]} before, {now[name]} now" for name in now if name in known and known[name] != now[name]
    ]
    if not changes:
        return None
    return (
        f"the run goes on in another place ({'; '.join(changes)}), so its weights will not be those of a run that was "
        "never stopped, bit for bit."
    )


def load_checkpoint(trainer: Trainer, folder: RunFolder | None, out: Path, note: Callable[[str], None]) -> None:
    """Put the trainer where the run's checkpoint is, if there is one.

    Every process reads the checkpoint that the leader found, so `out` must be on a disk that all of them see.
    """
    state = None if folder is None else folder.load_state(trainer.device, note)
    trainer.world.barrier()
    if folder is None:
        state = RunFolder.read_state(out, trainer.device)
    if state is None:
        return
    trainer.load(state)
    if folder is not None:
        if change := moved(state.get(PLACE), place(trainer.world, trainer.device)):
            note(change)
        folder.trim_log(trainer.step.steps_done)


def is_lost_process(error: RuntimeError, world: World) -> bool:
    """Whether the error says that another process of the job is gone."""
    return world.size > 1 and any(sign in str(error) for sign in LOST_PROCESS)


def how_to_go_on(out: Path) -> str:
    """Which checkpoint is on the disk and what to do, after the end of a job that may have been saved by another
    process."""
    step = _step_on_disk(out)
    there = "there is no checkpoint yet" if step is None else f"the last checkpoint is of step {step}"
    return f"{there}; go on with the same command and --resume (run folder {out})"


def _step_on_disk(out: Path) -> int | None:
    for name in (STATE, FORMER_STATE):
        try:
            state = RunFolder.read_state(out, "cpu", name)
        except RunError:
            continue
        if state is not None and isinstance(state.get("steps"), int):
            return int(state["steps"])
    return None
