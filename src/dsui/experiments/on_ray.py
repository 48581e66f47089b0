"""The engine that runs the jobs of a study on a Ray cluster whose machines share the folder of the study.

Ray starts a job again, at most RETRIES times and maybe elsewhere, when it loses the process or the machine that runs
it; the job then continues from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dsui.experiments.engines import JobStarts, job_command, log_file
from dsui.experiments.grid import Job
from dsui.experiments.leader import STOP_SECONDS, run_logged
from dsui.ray_cluster import connected_ray
from dsui.training.interruption import Interruption

RETRIES = 3
POLL_SECONDS = 0.2


def run_with_ray(
    jobs: Iterable[Job],
    command: Sequence[str],
    *,
    gpu: bool,
    logs: Path,
    job_finished: Callable[[Job, float, int | str], None],
    job_starts: JobStarts = lambda _job: None,
    note: Callable[[str], None] = lambda _sentence: None,
) -> bool:
    """Run the jobs, each on one GPU if `gpu` and if the cluster has any. Returns False if the user interrupted it.

    What a job prints goes to LOGS/RUN.log. `job_finished` gets a sentence in place of the status where a job could not
    be run. However this function ends, it leaves no job behind.
    """
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[Any, Job] = {}
    with connected_ray(note) as ray, Interruption() as interruption:
        gpus = 1 if gpu and ray.cluster_resources().get("GPU", 0) else 0
        remote = ray.remote(num_gpus=gpus, max_retries=RETRIES)(run_logged)
        began, here = time.monotonic(), str(Path.cwd())
        try:
            for job in jobs:
                job_starts(job)
                reference = remote.remote(job_command(command, job), here, str(log_file(logs.absolute(), job)))
                running[reference] = job
            while running and not interruption.requested:
                for ready in ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)[0]:
                    seconds, status = _result(ray, ready, began)
                    job_finished(running.pop(ready), seconds, status)
        finally:
            _cancel(ray, list(running))
        return not interruption.signalled


def _cancel(ray: Any, references: list[Any]) -> None:
    """Interrupt tasks and wait until they have stopped their processes."""
    for reference in references:
        ray.cancel(reference)
    if references:
        ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)


def _result(ray: Any, reference: object, began: float) -> tuple[float, int | str]:
    try:
        seconds, status = ray.get(reference)
    except Exception as error:  # Ray raises errors of many kinds, and the other jobs shall continue
        first = (str(error).splitlines() or [""])[0]
        return time.monotonic() - began, f"Ray lost its process ({type(error).__name__}: {first})."
    return seconds, status
