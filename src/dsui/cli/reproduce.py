"""`dsui reproduce`: a table or figure of the paper, or any other grid, from training to table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import (
    DEVICES,
    MODES,
    Device,
    Json,
    Quiet,
    Root,
    StepMode,
    check_name,
    check_outside_images,
    parse_path,
    select_device,
)
from dsui.cli.names import completion
from dsui.cli.output import Format, TableFormat, check_format, print_json
from dsui.cli.terminal import print_line
from dsui.errors import DsuiError, Stopped

if TYPE_CHECKING:
    from dsui.cli.reproduce_progress import StudyProgress
    from dsui.experiments.study import Job, Study

ENGINES = ("local", "slurm", "ray")
SCRIPT = "study.sbatch"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="GRID",
            help=f"{', '.join(names.grids())}, or your own YAML file.",
            autocompletion=completion(names.grids),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=parse_path, help="Where to keep the study.  [default: studies/GRID]"),
    ] = None,
    root: Root = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=parse_path,
            help="Where to keep the trained runs; several studies may share them.  [default: OUT/runs]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells with their states and times, and run none.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Number of processes; GPUs are assigned in turn.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="local: run here; slurm: write an array job; ray: run on a Ray cluster.",
            autocompletion=completion(lambda: ENGINES),
        ),
    ] = "local",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NAMES", help="Run only these cells, as in method=dsui or data=cifar10,svhn; may be repeated."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="NUMBERS", help="Run only these seeds, as in 0,1.")] = "",
    device: Device = "auto",
    mode: StepMode = "auto",
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache", help="Keep the network's outputs in the run folders, to reuse them; they are large."
        ),
    ] = False,
    published: Annotated[
        bool, typer.Option("--published/--no-published", help="Add the figures printed in the paper.")
    ] = True,
    table_format: TableFormat = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
    keys: Annotated[str, typer.Option("--cell", hidden=True, help="Run these cells here and print no table.")] = "",
) -> None:
    """Reproduce a table or figure of the paper, or any other grid.

    A grid is a list of cells. Each cell is trained and evaluated, then the table is printed. You can stop it at any
    moment; the same command continues.

    Example: dsui reproduce digits --out studies/digits
    """
    check_format(table_format, None, as_json)
    check_name("engine", engine, ENGINES)
    check_name("device", device, DEVICES)
    check_name("mode", mode, MODES)
    if not _is_file(name):
        check_name("grid", name, (*names.grids(), "FILE.yaml"))

    from dsui.cli.reproduce_cells import cell_states, cells_by_key, count_states, select_cells
    from dsui.cli.reproduce_output import print_cells, print_results, print_results_json
    from dsui.cli.reproduce_progress import StudyProgress
    from dsui.experiments.cell_run import RunContext
    from dsui.experiments.figure_points import require_packages
    from dsui.experiments.grid_file import load_grid
    from dsui.experiments.study import Study
    from dsui.training.loop import InterruptedRun

    grid = load_grid(name)
    study = Study(grid, out or Path("studies") / grid.name, root, runs)
    _check_outside_images(study)
    cells = cells_by_key(study, keys) if keys else select_cells(grid, only or [], seeds)
    jobs = study.jobs(cells)
    if dry_run:
        states = cell_states(study, cells, jobs)
        if as_json:
            print_json({"study": study.out, "cells": [cell._asdict() for cell in states]})
        else:
            print_cells(study, cells, states, workers)
        return
    command = _job_command(name, study, device=device, mode=mode, cache=cache)
    if engine == "slurm":
        _write_script(study, jobs, command, gpu=device != "cpu", as_json=as_json)
        return
    require_packages(cell.figure for job in jobs for cell in job)
    torch_device = select_device(device)
    try:
        with StudyProgress(study, jobs, collects=not keys, quiet=quiet) as progress:
            if engine == "local" and workers == 1:
                context = RunContext(
                    root=root,
                    device=torch_device,
                    keep_outputs=cache,
                    reporter=progress,
                    progress=progress.update,
                    warn=progress.note,
                    mode=MODES[mode],
                )
                progress.run(jobs, context)
            else:
                _run_in_other_processes(jobs, command, engine, workers, progress)
    except (InterruptedRun, KeyboardInterrupt) as stop:
        done = sum(map(study.done, cells))
        raise Stopped(
            f"stopped with {done} of {len(cells)} cells done and nothing lost; the same command continues "
            f"(study folder {study.out})."
        ) from stop
    states = cell_states(study, cells, ())
    if as_json:
        print_results_json(study, states, published=published)
    elif not keys:
        print_results(study, cells, table_format, published=published, quiet=quiet)
    if not all(map(study.done, cells)):
        raise DsuiError(
            f"cells are left ({count_states(states)}); --dry-run says why, and the same command tries again."
        )


def _check_outside_images(study: Study) -> None:
    """A study or a run among the images of folder:PATH would be taken for one of their classes."""
    datasets = {name for cell in study.grid.cells for name in (cell.config.data, cell.config.outliers) if name}
    for data in sorted(datasets):
        check_outside_images("--out", study.out, data)
        check_outside_images("--runs", study.runs, data)


def _run_in_other_processes(
    jobs: Sequence[Job], command: Sequence[str], engine: str, workers: int, progress: StudyProgress
) -> None:
    from dsui.cli.reproduce_progress import LOGS
    from dsui.experiments.engines import run_in_processes, run_with_ray

    logs, clear_failures = progress.study.out / LOGS, progress.study.clear_failures
    if engine == "ray":
        run_with_ray(jobs, command, logs=logs, job_finished=progress.job_finished, job_starts=clear_failures)
    elif not run_in_processes(
        jobs, command, workers, logs=logs, job_finished=progress.job_finished, job_starts=clear_failures
    ):
        raise KeyboardInterrupt


def _write_script(study: Study, jobs: Sequence[Job], command: Sequence[str], *, gpu: bool, as_json: bool) -> None:
    from dsui.cli.reproduce_progress import LOGS
    from dsui.experiments.engines import slurm_script

    if not jobs:
        raise DsuiError("no cell is left to run; leave out --engine slurm to see the table.")
    out = study.out.absolute()
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    study.write(SCRIPT, slurm_script(study.grid.name, jobs, command, out / LOGS, gpu))
    if as_json:
        print_json({"study": study.out, "script": out / SCRIPT, "tasks": len(jobs)})
        return
    print_line(
        f"{out / SCRIPT} holds {len(jobs)} task{'s' * (len(jobs) > 1)}. "
        "Submit it, and for the table repeat this command without --engine slurm:"
    )
    print_line(f"sbatch {shlex.quote(str(out / SCRIPT))}")


def _is_file(name: str) -> bool:
    """Whether GRID names a file, not a grid that comes with dsui."""
    return name.lower().endswith((".yaml", ".yml"))


def _job_command(name: str, study: Study, *, device: str, mode: str, cache: bool) -> list[str]:
    """The command for one job of this study, which works in any folder; `--cell KEYS` is still to be added."""
    grid = str(Path(name).expanduser().absolute()) if _is_file(name) else name
    folders = {"--out": study.out, "--runs": study.runs, "--root": study.root}
    paths = [part for option, path in folders.items() if path is not None for part in (option, str(path.absolute()))]
    keep = ["--cache"] if cache else []
    return [sys.executable, "-m", "dsui", "reproduce", grid, *paths, "--device", device, "--mode", mode, *keep]
