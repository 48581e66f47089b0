"""`dsui reproduce`: a table or figure of the paper, or a grid of one's own, end to end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import documents, names
from dsui.cli.choice import known
from dsui.cli.formats import Form, Format, check_form
from dsui.cli.names import completion
from dsui.cli.options import DEVICES, MODES, Device, Json, Quiet, Root, Steps, given_path
from dsui.errors import DsuiError, Stopped

if TYPE_CHECKING:
    from dsui.cli.study_screen import StudyScreen
    from dsui.experiments.study import Job, Study

ENGINES = ("local", "slurm", "ray")
SCRIPT = "study.sbatch"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="GRID",
            help=f"{', '.join(names.grids())}, or a YAML file of one's own.",
            autocompletion=completion(names.grids),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=given_path, help="Where the study is kept; studies/GRID by default."),
    ] = None,
    root: Root = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=given_path,
            help="Where the trained runs are kept, OUT/runs by default; studies may share one.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells, their state and time; run none.")] = False,
    workers: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Processes at a time, each on the next GPU.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="local: here; slurm: write an array job; ray: on a cluster.",
            autocompletion=completion(lambda: ENGINES),
        ),
    ] = "local",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NAMES", help="Run these cells only, as in method=dsui or data=cifar10,svhn; may be repeated."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="NUMBERS", help="Run these seeds only: 0,1")] = "",
    device: Device = "auto",
    mode: Steps = "auto",
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep the outputs in the folders of the runs; they are large.")
    ] = False,
    quoted: Annotated[bool, typer.Option("--published/--no-published", help="The paper's own figures below.")] = True,
    form: Form = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
    keys: Annotated[str, typer.Option("--cell", hidden=True, help="Run these cells here and print no table.")] = "",
) -> None:
    """Reproduce a table or figure of the paper, or any other grid.

    Every cell is trained and evaluated, then the table printed; stopped at any moment, it goes on.

    Example: dsui reproduce digits --out studies/digits
    """
    check_form(form, None, as_json)
    known("engine", engine, ENGINES)
    known("device", device, DEVICES)
    known("mode", mode, MODES)
    if not name.lower().endswith((".yaml", ".yml")):
        known("grid", name, (*names.grids(), "FILE.yaml"))

    from dsui.cli.device import command_device
    from dsui.cli.study_cells import counted, filtered, named, states
    from dsui.cli.study_output import show_document, show_list, show_results
    from dsui.cli.study_screen import StudyScreen
    from dsui.experiments.cell_run import Conditions
    from dsui.experiments.figure_points import require_packages
    from dsui.experiments.grid_file import load_grid
    from dsui.experiments.study import Study
    from dsui.training.loop import InterruptedRun

    grid = load_grid(name)
    study = Study(grid, out or Path("studies") / grid.name, root, runs)
    wanted = named(study, keys) if keys else filtered(grid, only or [], seeds)
    jobs = study.jobs(wanted)
    if dry_run:
        found = states(study, wanted, jobs)
        if as_json:
            documents.show({"study": study.out, "cells": [cell._asdict() for cell in found]})
        else:
            show_list(study, wanted, found, workers)
        return
    command = _command(name, study, device, mode, cache)
    if engine == "slurm":
        _write_script(study, jobs, command, device != "cpu", as_json)
        return
    require_packages(cell.figure for job in jobs for cell in job)
    place = command_device(device)
    try:
        with StudyScreen(study, jobs, collects=not keys, quiet=quiet) as screen:
            if engine == "local" and workers == 1:
                screen.run(jobs, Conditions(root, place, cache, screen, screen.images, screen.say, MODES[mode]))
            else:
                _delegate(jobs, command, engine, workers, screen)
    except (InterruptedRun, KeyboardInterrupt) as stop:
        done = sum(map(study.done, wanted))
        raise Stopped(
            f"stopped with {done} of {len(wanted)} cells done and nothing lost; go on with the same command "
            f"(study folder {study.out})."
        ) from stop
    found = states(study, wanted, ())
    if as_json:
        show_document(study, found, quoted)
    elif not keys:
        show_results(study, wanted, form, quoted, quiet)
    if not all(map(study.done, wanted)):
        raise DsuiError(f"cells are left ({counted(found)}); --dry-run tells why, and the same command tries again.")


def _delegate(jobs: Sequence[Job], command: Sequence[str], engine: str, workers: int, screen: StudyScreen) -> None:
    """Let other processes carry out the jobs."""
    from dsui.cli.study_screen import LOGS
    from dsui.experiments.engines import several_processes, with_ray

    logs, begins = screen.study.out / LOGS, screen.study.forget
    if engine == "ray":
        with_ray(jobs, command, logs, screen.ended, begins=begins)
    elif not several_processes(jobs, command, workers, logs, screen.ended, begins=begins):
        raise KeyboardInterrupt


def _write_script(study: Study, jobs: Sequence[Job], command: Sequence[str], gpu: bool, as_json: bool) -> None:
    from dsui.cli.study_screen import LOGS
    from dsui.experiments.engines import slurm_script

    if not jobs:
        raise DsuiError("no cell is left to run; leave out --engine slurm to see the table.")
    out = study.out.absolute()
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    study.write(SCRIPT, slurm_script(study.grid.name, jobs, command, out / LOGS, gpu))
    if as_json:
        documents.show({"study": study.out, "script": out / SCRIPT, "tasks": len(jobs)})
        return
    typer.echo(
        f"{out / SCRIPT} holds {len(jobs)} task{'s' * (len(jobs) > 1)}. "
        "Submit it, and for the table repeat this without --engine slurm:"
    )
    typer.echo(f"sbatch {shlex.quote(str(out / SCRIPT))}")


def _command(name: str, study: Study, device: str, mode: str, cache: bool) -> list[str]:
    """This study from any folder; `--cell` is to follow."""
    grid = str(Path(name).expanduser().absolute()) if name.lower().endswith((".yaml", ".yml")) else name
    folders = {"--out": study.out, "--runs": study.runs, "--root": study.root}
    placed = [part for option, path in folders.items() if path is not None for part in (option, str(path.absolute()))]
    kept = ["--cache"] if cache else []
    return [sys.executable, "-m", "dsui", "reproduce", grid, *placed, "--device", device, "--mode", mode, *kept]
