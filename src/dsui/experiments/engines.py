"""Who carries out the jobs of a study: several processes here, an array of SLURM jobs, or Ray.

Each job is a process of its own, `command` and `--cell KEYS`, so all of them resume, skip and fail alike.
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

Ended = Callable[[Job, float, int], None]
"""Hears of a job's seconds and exit status."""
PAUSE = 0.1
PATIENCE = 60.0
"""Seconds that a job gets to write its checkpoint when it is asked to stop."""


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    slot: int
    began: float


def several_processes(
    jobs: Sequence[Job],
    command: Sequence[str],
    count: int,
    logs: Path,
    ended: Ended,
    waiting_on: Callable[[], None] = lambda: None,
    begins: Callable[[Job], None] = lambda _job: None,
) -> bool:
    """Run the jobs, `count` at a time, each on the next of the visible GPUs; False if asked to stop before the end.

    What a job prints goes to LOGS/RUN.log. `waiting_on` is called now and then while jobs run, `begins` before a job
    starts. Whatever ends this function, no job outlives it.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, free = list(jobs), list[_Running](), list(range(count))
    with Interruption() as interruption:
        try:
            while (waiting or running) and not interruption.requested:
                while waiting and free:
                    job, slot = waiting.pop(0), free.pop(0)
                    begins(job)
                    with _log(logs, job).open("ab") as log:
                        running.append(
                            _Running(job, _start(_arguments(command, job), slot, count, log), slot, time.monotonic())
                        )
                time.sleep(PAUSE)
                waiting_on()
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    free.append(each.slot)
                    ended(each.job, time.monotonic() - each.began, each.process.returncode)
        finally:
            _stop([each.process for each in running])
        return not interruption.requested


def visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def slurm_script(name: str, jobs: Sequence[Job], command: Sequence[str], logs: Path, gpu: bool) -> str:
    """An array job with one task for each run that has unfinished cells; submitted again, it goes on."""
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
            "# relative paths in the grid begin where the script was written",
            f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
            "cells=(",
            *keys,
            ")",
            f'exec {shlex.join(command)} --cell "${{cells[$SLURM_ARRAY_TASK_ID]}}"',
            "",
        ]
    )


def with_ray(
    jobs: Sequence[Job],
    command: Sequence[str],
    logs: Path,
    ended: Callable[[Job, float, int | str], None],
    begins: Callable[[Job], None] = lambda _job: None,
) -> None:
    """Run the jobs on a Ray cluster whose machines share the folder of the study, each on one GPU if there are any.

    What a job prints goes to LOGS/RUN.log. Of a job that Ray lost with its machine or for want of memory, `ended` hears
    a sentence in place of the status.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise DsuiError("--engine ray needs the package ray; install it, or choose --engine local or slurm.") from error
    ray.init(ignore_reinit_error=True)
    remote = ray.remote(num_gpus=1 if ray.cluster_resources().get("GPU", 0) else 0)(_call)
    for job in jobs:
        begins(job)
    began = time.monotonic()
    here = str(Path.cwd())
    logs.mkdir(parents=True, exist_ok=True)
    running = {remote.remote(_arguments(command, job), here, str(_log(logs.absolute(), job))): job for job in jobs}
    while running:
        (ready, *_), _ = ray.wait(list(running), num_returns=1)
        seconds, status = _answer(ray, ready, began)
        ended(running.pop(ready), seconds, status)


def _answer(ray: Any, reference: object, began: float) -> tuple[float, int | str]:
    try:
        seconds, status = ray.get(reference)
    except Exception as error:  # Ray raises what it pleases, and the other jobs go on
        first = (str(error).splitlines() or [""])[0]
        return time.monotonic() - began, f"Ray lost its process ({type(error).__name__}: {first})."
    return seconds, status


def _keys(job: Job) -> str:
    return ",".join(cell.key for cell in job)


def _arguments(command: Sequence[str], job: Job) -> list[str]:
    return [*command, "--cell", _keys(job)]


def _log(logs: Path, job: Job) -> Path:
    return logs / f"{job[0].run}.log"


def _call(arguments: list[str], folder: str, log: str) -> tuple[float, int]:
    """Relative paths in the grid begin in `folder`, where the machine has it."""
    began, where = time.monotonic(), folder if Path(folder).is_dir() else None
    with Path(log).open("ab") as stream:
        status = subprocess.run(arguments, check=False, cwd=where, stdout=stream, stderr=stream).returncode  # noqa: S603
    return time.monotonic() - began, status


def _start(arguments: list[str], slot: int, count: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C reaches this process alone and it decides."""
    environment = dict(os.environ)
    environment["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // count))
    if gpus := visible_gpus():
        environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    return subprocess.Popen(  # noqa: S603
        arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask them to save and end; after a while end them, since their last checkpoint is whole anyway."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
