"""How `dsui reproduce` has its jobs run elsewhere: in other processes of this machine, on Ray, or under SLURM."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from dsui.cli.json_output import print_json
from dsui.cli.reproduce_progress import LOGS, StudyProgress
from dsui.cli.terminal import print_line
from dsui.errors import DsuiError
from dsui.experiments.engines import run_in_processes
from dsui.experiments.grid import Job
from dsui.experiments.on_ray import run_with_ray
from dsui.experiments.queue import JobQueue
from dsui.experiments.slurm import slurm_script
from dsui.experiments.study import Study

SCRIPT = "study.sbatch"


def job_command(name: str, study: Study, rows: Path | None, *, device: str, mode: str, cache: bool) -> list[str]:
    """The command for one job of a study, which works in any folder; `--cell KEYS` is still to be added. `name` is a
    shipped grid or a file, and `rows` the file of --rows."""
    grid = str(Path(name).expanduser().absolute()) if name.lower().endswith((".yaml", ".yml")) else name
    folders = {"--out": study.out, "--runs": study.runs, "--rows": rows, "--root": study.root}
    paths = [part for option, path in folders.items() if path is not None for part in (option, str(path.absolute()))]
    keep = ["--cache"] if cache else []
    return [sys.executable, "-m", "dsui", "reproduce", grid, *paths, "--device", device, "--mode", mode, *keep]


def run_in_other_processes(
    queue: JobQueue, command: Sequence[str], engine: str, workers: int, progress: StudyProgress, *, gpu: bool
) -> None:
    logs, clear_failures = progress.study.out / LOGS, progress.study.clear_failures
    if engine == "ray":
        ended = run_with_ray(
            queue,
            command,
            gpu=gpu,
            logs=logs,
            job_finished=progress.job_finished,
            job_starts=clear_failures,
            note=progress.note,
        )
    else:
        ended = run_in_processes(
            queue,
            command,
            workers,
            logs=logs,
            job_finished=progress.job_finished,
            job_starts=clear_failures,
            deadline=queue.deadline,
        )
    if not ended:
        raise KeyboardInterrupt


def write_script(study: Study, jobs: Sequence[Job], command: Sequence[str], *, gpu: bool, as_json: bool) -> None:
    """Write the SLURM script of a study and say how to submit it."""
    if not jobs:
        raise DsuiError("no cell is left to run; leave out --engine slurm to see the table.")
    out = study.out.absolute()
    script = slurm_script(study.grid.name, jobs, command, out / LOGS, gpu)
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    study.write(SCRIPT, script)
    if as_json:
        print_json({"study": study.out, "script": out / SCRIPT, "tasks": len(jobs)})
        return
    print_line(
        f"{out / SCRIPT} holds {len(jobs)} task{'s' * (len(jobs) > 1)}. "
        "Submit it, and for the table repeat this command without --engine slurm:"
    )
    print_line(f"sbatch {shlex.quote(str(out / SCRIPT))}")
