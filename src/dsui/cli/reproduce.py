"""`dsui reproduce`: a table or figure of the paper, or any other grid, from training to table."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import DEVICES, MODES, Device, Root, StepMode, check_name, select_device
from dsui.cli.errors import UsageError
from dsui.cli.names import completion
from dsui.cli.output import Format, TableFormat, check_format
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.errors import Stopped

ENGINES = ("local", "slurm", "ray")
DEFAULT_OUT = Path("reproduced")


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="GRID",
            help=f"{', '.join(names.grids())} (those of the paper), or your own YAML file.",
            autocompletion=completion(names.grids),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=parse_path, help="Where to keep the study.  [default: reproduced/GRID]"),
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
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            parser=parse_path,
            help="Results rows of other machines, a file or a folder of .jsonl files; cells that they fill are done. "
            "May be repeated.",
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=parse_path,
            help="Append the rows of each cell to this file as soon as it is done; cells that it fills are done.  "
            "[default: OUT/results.jsonl]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells with their states and times, and run none.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Stop after this time: no run begins that would not end in time, and the others stop at a checkpoint.",
        ),
    ] = None,
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
    stop_at: Annotated[
        float | None, typer.Option(hidden=True, help="When training has to stop, in seconds since 1970.")
    ] = None,
) -> None:
    """Reproduce a table or figure of the paper, or any other grid.

    A grid is a list of cells. Each cell is trained and evaluated, then the table is printed. You can stop it at any
    moment; the same command continues.

    Example: dsui reproduce digits --out reproduced/digits
    """
    began = time.time()
    _check_usage(name, engine, device, mode, minutes, table_format, as_json=as_json)

    from dsui.cli import reproduce_output as output
    from dsui.cli.reproduce_cells import OpenedStudy, cell_states, cells_by_key, machine_of, select_cells
    from dsui.cli.reproduce_progress import StudyProgress
    from dsui.cli.reproduce_run import job_command, run_in_other_processes, write_script
    from dsui.experiments.cell_run import RunContext
    from dsui.experiments.figure_points import require_packages
    from dsui.experiments.leader import end_with_leader
    from dsui.experiments.queue import Deadline, JobQueue
    from dsui.training.loop import InterruptedRun

    end_with_leader()
    out = out or DEFAULT_OUT / (Path(name).stem if _is_file(name) else name)
    opened = OpenedStudy.open(name, out, root, runs, results or [], rows, reads_rows=not keys)
    study = opened.study
    opened.check_outside_images()
    cells = cells_by_key(study, keys) if keys else select_cells(study.grid, only or [], seeds)
    machine = machine_of(device, mode, workers if engine == "local" else 1)
    if dry_run:
        output.print_plan(opened, cells, machine, workers, as_json=as_json)
        return
    jobs = study.jobs(cells)
    command = job_command(name, study, rows, device=device, mode=mode, cache=cache)
    if engine == "slurm":
        write_script(study, jobs, command, gpu=device != "cpu", as_json=as_json)
        return
    require_packages(cell.figure for job in jobs for cell in job)
    torch_device = select_device(device)
    deadline = None if minutes is None else Deadline(60 * minutes, began)
    queue = JobQueue(jobs, opened.worth, lambda some: study.estimates(some, machine, study.speeds()), deadline)
    try:
        with (
            study.lead() if jobs and not keys else nullcontext(),
            StudyProgress(study, sum(map(len, jobs)), machine, quiet=quiet, notes_speed=not keys) as progress,
        ):
            if engine == "local" and workers == 1:
                context = RunContext(
                    root=root,
                    device=torch_device,
                    keep_outputs=cache,
                    reporter=progress,
                    progress=progress.update,
                    warn=progress.note,
                    mode=MODES[mode],
                    stop_at=stop_at or (math.inf if deadline is None else deadline.training_ends),
                    ends_at=math.inf if deadline is None else deadline.moment,
                )
                progress.run(queue, context)
            else:
                run_in_other_processes(queue, command, engine, workers, progress, gpu=device != "cpu")
    except (InterruptedRun, KeyboardInterrupt) as stop:
        if isinstance(stop, KeyboardInterrupt) or deadline is None or not deadline.stops_training:
            done = sum(map(study.done, cells))
            raise Stopped(
                f"stopped with {done} of {len(cells)} cells done and nothing lost; the same command continues "
                f"(study folder {study.out})."
            ) from stop
    states = cell_states(study, cells)
    if as_json:
        output.print_results_json(opened, states, published=published)
    elif not keys:
        output.print_results(opened, cells, table_format, published=published, quiet=quiet)
    output.check_all_done(states, minutes)


def _check_usage(
    name: str, engine: str, device: str, mode: str, minutes: float | None, table_format: Format, *, as_json: bool
) -> None:
    check_format(table_format, None, as_json)
    check_name("engine", engine, ENGINES)
    check_name("device", device, DEVICES)
    check_name("mode", mode, MODES)
    if minutes is not None and engine != "local":
        raise UsageError("--minutes is for --engine local; a cluster has time limits of its own.")
    if not _is_file(name):
        check_name("grid", name, (*names.grids(), "FILE.yaml"))


def _is_file(name: str) -> bool:
    """Whether GRID names a file, not a grid that comes with dsui."""
    return name.lower().endswith((".yaml", ".yml"))
