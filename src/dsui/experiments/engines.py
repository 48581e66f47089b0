"""Engines that run the jobs of a study: processes on this machine, an array of SLURM jobs, or Ray.

Each job is a separate process, `command --cell KEYS`, so that jobs resume, skip and fail in the same way everywhere.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import torch

from dsui.errors import DsuiError
from dsui.experiments.study import Job
from dsui.training.interruption import Interruption

JobStarts = Callable[[Job], None]
"""Called before a job starts."""
JobFinished = Callable[[Job, float, int], None]
"""Called with the seconds and the exit status of a job."""
POLL_SECONDS = 0.1
STOP_SECONDS = 60.0
"""How long a job may take to write its checkpoint when it is stopped."""


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    slot: int
    began: float


def run_in_processes(
    jobs: Sequence[Job],
    command: Sequence[str],
    processes: int,
    *,
    logs: Path,
    job_finished: JobFinished,
    job_starts: JobStarts = lambda _job: None,
    poll: Callable[[], None] = lambda: None,
) -> bool:
    """Run the jobs in several processes at a time, each on the next of the visible GPUs.

    Returns False if the user interrupted it. What a job prints goes to LOGS/RUN.log. `poll` is called several times a
    second while jobs run. However this function ends, it leaves no process behind.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, free = list(jobs), list[_Running](), list(range(processes))
    with Interruption() as interruption:
        try:
            while (waiting or running) and not interruption.requested:
                while waiting and free:
                    job, slot = waiting.pop(0), free.pop(0)
                    job_starts(job)
                    with _log_file(logs, job).open("ab") as log:
                        process = _start(_job_command(command, job), slot, processes, log)
                    running.append(_Running(job, process, slot, time.monotonic()))
                time.sleep(POLL_SECONDS)
                poll()
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    free.append(each.slot)
                    job_finished(each.job, time.monotonic() - each.began, each.process.returncode)
        finally:
            _stop([each.process for each in running])
        return not interruption.requested


def visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def slurm_script(name: str, jobs: Sequence[Job], command: Sequence[str], logs: Path, gpu: bool) -> str:
    """An array job with one task for each run that has unfinished cells; submitted again, it continues."""
    keys = [f"    {_keys(job)}  # {' '.join('; '.join(cell.name for cell in job).split())}" for job in jobs]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={shlex.quote(f'dsui-{name}')}",
            f"#SBATCH --array=0-{len(jobs) - 1}",
            f"#SBATCH --output={shlex.quote(str(logs / '%A_%a.log'))}",
            *(["#SBATCH --gpus=1"] if gpu else []),
            "#SBATCH --requeue",
            "# a minute before the time limit: the run writes its checkpoint and ends",
            "#SBATCH --signal=B:TERM@60",
            "# relative paths in the grid start at the folder where this script was written",
            f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
            "cells=(",
            *keys,
            ")",
            f'exec {shlex.join(command)} --cell "${{cells[$SLURM_ARRAY_TASK_ID]}}"',
            "",
        ]
    )


def run_with_ray(
    jobs: Sequence[Job],
    command: Sequence[str],
    *,
    logs: Path,
    job_finished: Callable[[Job, float, int | str], None],
    job_starts: JobStarts = lambda _job: None,
) -> None:
    """Run the jobs on a Ray cluster whose machines share the folder of the study, each on one GPU if there are any.

    What a job prints goes to LOGS/RUN.log. If Ray loses a job, because its machine failed or had no memory left,
    `job_finished` gets a sentence in place of the status.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise DsuiError("--engine ray needs the package ray; install it, or choose --engine local or slurm.") from error
    ray.init(ignore_reinit_error=True)
    remote = ray.remote(num_gpus=1 if ray.cluster_resources().get("GPU", 0) else 0)(_run_logged)
    for job in jobs:
        job_starts(job)
    began = time.monotonic()
    here = str(Path.cwd())
    logs.mkdir(parents=True, exist_ok=True)
    running = {
        remote.remote(_job_command(command, job), here, str(_log_file(logs.absolute(), job))): job for job in jobs
    }
    while running:
        (ready, *_), _ = ray.wait(list(running), num_returns=1)
        seconds, status = _ray_result(ray, ready, began)
        job_finished(running.pop(ready), seconds, status)


def _ray_result(ray: Any, reference: object, began: float) -> tuple[float, int | str]:
    try:
        seconds, status = ray.get(reference)
    except Exception as error:  # Ray raises errors of many kinds, and the other jobs shall continue
        first = (str(error).splitlines() or [""])[0]
        return time.monotonic() - began, f"Ray lost its process ({type(error).__name__}: {first})."
    return seconds, status


def _keys(job: Job) -> str:
    return ",".join(cell.key for cell in job)


def _job_command(command: Sequence[str], job: Job) -> list[str]:
    return [*command, "--cell", _keys(job)]


def _log_file(logs: Path, job: Job) -> Path:
    return logs / f"{job[0].run_name}.log"


def _run_logged(arguments: list[str], folder: str, log: str) -> tuple[float, int]:
    """Run a process to its end; its seconds and its status. It starts in `folder`, if the machine has it, since
    relative paths in the grid start there."""
    began, where = time.monotonic(), folder if Path(folder).is_dir() else None
    with Path(log).open("ab") as stream:
        status = subprocess.run(arguments, check=False, cwd=where, stdout=stream, stderr=stream).returncode  # noqa: S603
    return time.monotonic() - began, status


def _start(arguments: list[str], slot: int, processes: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process in a new session: Ctrl-C reaches only this process, which then stops the others."""
    environment = dict(os.environ)
    environment["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(
        max(1, (os.cpu_count() or 1) // processes)
    )
    if gpus := visible_gpus():
        environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    return subprocess.Popen(  # noqa: S603
        arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let the processes write their checkpoints and end; kill those that take too long, whose last checkpoint stays."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
