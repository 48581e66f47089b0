"""A study as an array of SLURM jobs: a script with one task for each run that has unfinished cells."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from dsui.errors import DsuiError
from dsui.experiments.engines import job_keys
from dsui.experiments.grid import Job

NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)


def slurm_script(name: str, jobs: Sequence[Job], command: Sequence[str], logs: Path, gpu: bool) -> str:
    """The script; submitted again, it continues. Nothing of a name or path is read as a command or an option."""
    output = f"{_one_line(logs).replace('%', '%%')}/%A_%a.log"
    keys = [f"    {job_keys(job)}  # {' '.join('; '.join(cell.name for cell in job).split())}" for job in jobs]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name=dsui-{NOT_IN_NAMES.sub('-', name)}",
            f"#SBATCH --array=0-{len(jobs) - 1}",
            f"#SBATCH --output={shlex.quote(output)}",
            *(["#SBATCH --gpus=1"] if gpu else []),
            "#SBATCH --requeue",
            "#SBATCH --open-mode=append",  # a task that is requeued keeps what it printed before
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


def _one_line(logs: Path) -> str:
    """A line of options ends where the path has a line break, and bash would run the rest."""
    text = str(logs)
    if len(text.splitlines()) != 1:
        raise DsuiError(f"{text!r} has a line break in it, which SLURM cannot read; choose another --out.")
    return text
