"""Engines that run the jobs of a study: processes on this machine, or Ray. `dsui.experiments.slurm` has a third.

Each job is a separate process, `command --cell KEYS`, so that jobs resume, skip and fail in the same way everywhere.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from dsui.errors import DsuiError
from dsui.experiments.grid import Job
from dsui.experiments.leader import STOP_SECONDS, finished, start, stop
from dsui.experiments.queue import Deadline
from dsui.training.interruption import Interruption

JobStarts = Callable[[Job], None]
"""Called before a job starts."""
JobFinished = Callable[[Job, float, int], None]
"""Called with the seconds and the exit status of a job."""
POLL_SECONDS = 0.1


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
                    with _log_file(logs, job).open("ab") as log:
                        process = start(_job_command(command, job), log, _environment(slot, processes))
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


def run_with_ray(
    jobs: Iterable[Job],
    command: Sequence[str],
    *,
    logs: Path,
    job_finished: Callable[[Job, float, int | str], None],
    job_starts: JobStarts = lambda _job: None,
) -> None:
    """Run the jobs on a Ray cluster whose machines share the folder of the study, each on one GPU if there are any.

    What a job prints goes to LOGS/RUN.log. If Ray loses a job, because its machine failed or had no memory left,
    `job_finished` gets a sentence in place of the status. However this function ends, it cancels what still runs.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise DsuiError("--engine ray needs the package ray; install it, or choose --engine local or slurm.") from error
    ray.init(ignore_reinit_error=True)
    remote = ray.remote(num_gpus=1 if ray.cluster_resources().get("GPU", 0) else 0)(_run_logged)
    work = list(jobs)
    for job in work:
        job_starts(job)
    began = time.monotonic()
    here = str(Path.cwd())
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[Any, Job] = {}
    try:
        for job in work:
            reference = remote.remote(_job_command(command, job), here, str(_log_file(logs.absolute(), job)))
            running[reference] = job
        while running:
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            seconds, status = _ray_result(ray, ready, began)
            job_finished(running.pop(ready), seconds, status)
    finally:
        _cancel(ray, list(running))


def _cancel(ray: Any, references: list[Any]) -> None:
    """Interrupt tasks and wait until they have stopped their processes."""
    for reference in references:
        ray.cancel(reference)
    if references:
        ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)


def _ray_result(ray: Any, reference: object, began: float) -> tuple[float, int | str]:
    try:
        seconds, status = ray.get(reference)
    except Exception as error:  # Ray raises errors of many kinds, and the other jobs shall continue
        first = (str(error).splitlines() or [""])[0]
        return time.monotonic() - began, f"Ray lost its process ({type(error).__name__}: {first})."
    return seconds, status


def job_keys(job: Job) -> str:
    """The value of --cell for a job."""
    return ",".join(cell.key for cell in job)


def _job_command(command: Sequence[str], job: Job) -> list[str]:
    return [*command, "--cell", job_keys(job)]


def _log_file(logs: Path, job: Job) -> Path:
    return logs / f"{job[0].run_name}.log"


def _run_logged(arguments: list[str], folder: str, log: str) -> tuple[float, int]:
    """Run a process to its end; its seconds and its status. It starts in `folder`, if the machine has it, since
    relative paths in the grid start there. A cancelled task stops its process."""
    began, where = time.monotonic(), folder if Path(folder).is_dir() else None
    with Path(log).open("ab") as stream:
        process = start(arguments, stream, folder=where)
        try:
            process.wait()
        finally:
            stop([process])
    return time.monotonic() - began, process.returncode


def _environment(slot: int, processes: int) -> dict[str, str]:
    """What the process of a slot finds: its share of the processors, and its GPU."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // processes))
    gpus = visible_gpus()
    return {"OMP_NUM_THREADS": threads} | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {})
