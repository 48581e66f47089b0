"""The engine that runs the jobs of a study in processes on this machine. `on_ray` and `slurm` have two others.

Each job is a separate process, `command --cell KEYS`, so that jobs resume, skip and fail in the same way everywhere.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dsui.experiments.grid import Job
from dsui.experiments.leader import POLL_SECONDS, finished, start, stop
from dsui.experiments.queue import Deadline
from dsui.training.interruption import Interruption

JobStarts = Callable[[Job], None]
"""Called before a job starts."""
JobFinished = Callable[[Job, float, int], None]
"""Called with the seconds and the exit status of a job."""


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    slot: int
    began: float


def run_in_processes(
    jobs: Iterable[Job],
    command: Sequence[str],
    processes: int,
    *,
    logs: Path,
    job_finished: JobFinished,
    job_starts: JobStarts = lambda _job: None,
    poll: Callable[[], None] = lambda: None,
    deadline: Deadline | None = None,
) -> bool:
    """Run the jobs in several processes at a time, each on the next of the visible GPUs.

    The next job is asked for when a process is free. Returns False if the user interrupted it. What a job prints goes
    to LOGS/RUN.log. `poll` is called several times a second while jobs run. Jobs learn when their training has to stop,
    and what still runs after the deadline is ended. However this function ends, it leaves no process behind; nor does
    the death of its own process.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, free = iter(jobs), list[_Running](), list(range(processes))
    if deadline is not None:
        command = [*command, "--stop-at", f"{deadline.training_ends:.3f}"]
    with Interruption(until=math.inf if deadline is None else deadline.moment) as interruption:
        try:
            while not interruption.requested:
                while free and (job := next(waiting, None)) is not None:
                    slot = free.pop(0)
                    job_starts(job)
                    with log_file(logs, job).open("ab") as log:
                        process = start(job_command(command, job), log, _environment(slot, processes))
                    running.append(_Running(job, process, slot, time.monotonic()))
                if not running:
                    break
                time.sleep(POLL_SECONDS)
                poll()
                for each in [each for each in running if finished(each.process)]:
                    running.remove(each)
                    free.append(each.slot)
                    job_finished(each.job, time.monotonic() - each.began, each.process.returncode)
        finally:
            stop([each.process for each in running])
        return not interruption.signalled


def visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def job_keys(job: Job) -> str:
    """The value of --cell for a job."""
    return ",".join(cell.key for cell in job)


def job_command(command: Sequence[str], job: Job) -> list[str]:
    return [*command, "--cell", job_keys(job)]


def log_file(logs: Path, job: Job) -> Path:
    return logs / f"{job[0].run_name}.log"


def _environment(slot: int, processes: int) -> dict[str, str]:
    """What the process of a slot finds: its share of the processors, and its GPU."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // processes))
    gpus = visible_gpus()
    return {"OMP_NUM_THREADS": threads} | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {})
