"""`dsui reproduce`: a table or figure of the paper, or a grid of one's own, end to end."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsui.cli.choice import chosen
from dsui.cli.device import device_type
from dsui.cli.formats import Format, formatted
from dsui.errors import DsuiError
from dsui.experiments.cell_run import Conditions
from dsui.experiments.engines import several_processes, slurm_script, with_ray
from dsui.experiments.grid import Cell, Grid
from dsui.experiments.grid_file import load_grid, names
from dsui.experiments.study import Job, Study
from dsui.experiments.study_table import figure_csv, missing_notes, study_table
from dsui.report import table_forms
from dsui.training.loop import InterruptedRun

FACTS: dict[str, Callable[[Cell], str]] = {
    "method": lambda cell: cell.predictor,
    "data": lambda cell: cell.config.data,
    "backbone": lambda cell: cell.config.backbone,
    "recipe": lambda cell: cell.config.recipe.name,
    "known": lambda cell: cell.config.known or "none",
    "label": lambda cell: cell.label,
}
"""What --only may choose by."""
SCRIPT, LOGS, FIGURE = "study.sbatch", "logs", "figure.csv"


class Engine(StrEnum):
    local = "local"
    slurm = "slurm"
    ray = "ray"


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{', '.join(names())}, or a YAML file of one's own.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the study; studies/NAME by default.")] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder of the trained runs, OUT/runs by default; studies may share one.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells, their state and time; run none.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes at a time, each on the next GPU.")] = 1,
    engine: Annotated[
        Engine, typer.Option(help="local: here; slurm: write an array job; ray: on a cluster.")
    ] = Engine.local,
    only: Annotated[
        list[str] | None, typer.Option(help="Run these cells only: --only method=dsui --only data=cifar10,svhn")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Run these seeds only: 0,1")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    cache: Annotated[bool, typer.Option(help="Keep outputs in the folders of the runs; they are large.")] = False,
    quoted: Annotated[bool, typer.Option("--published/--no-published", help="The paper's own figures below.")] = True,
    form: Annotated[Format, typer.Option("--format", help="Of the printed table.")] = Format.terminal,
    keys: Annotated[str, typer.Option("--cell", hidden=True, help="Run these cells here and print no table.")] = "",
) -> None:
    """Train and evaluate every cell of a grid, then print its table; stopped at any moment, it goes on.

    Example: dsui reproduce digits --out studies/digits
    """
    grid = load_grid(name)
    study = Study(grid, out or Path("studies") / grid.name, root, runs)
    wanted = _named(study, keys) if keys else _filtered(grid, only or [], seeds)
    jobs = study.jobs(wanted)
    if dry_run:
        _list(study, wanted, jobs, workers)
        return
    command = _command(name, study, device, cache)
    if engine is Engine.slurm:
        _write_script(study, jobs, command, gpu=device != "cpu")
        return
    kind = device_type(device)
    try:
        with _Screen(study, jobs, collects=not keys) as screen:
            if engine is Engine.ray:
                with_ray(jobs, command, screen.ended)
            elif workers > 1:
                if not several_processes(jobs, command, workers, study.out / LOGS, screen.ended):
                    raise KeyboardInterrupt
            else:
                conditions = Conditions(root, torch.device(kind), cache, screen, screen.images, screen.say)
                for job in jobs:
                    screen.begin(job)
                    study.run(job, conditions, screen.told)
    except (InterruptedRun, KeyboardInterrupt) as stop:
        done = sum(map(study.done, wanted))
        raise DsuiError(
            f"stopped with {done} of {len(wanted)} cells done and nothing lost; go on with the same command "
            f"(study folder {study.out})."
        ) from stop
    if not keys:
        _show(study, wanted, form, quoted)
    if not all(map(study.done, wanted)):
        raise typer.Exit(1)


class _Screen:
    """One line for each cell that ended; on a terminal also a bar for the one that runs.

    Only the process that leads a study collects its results; those that run single cells would be in each other's way.
    """

    def __init__(self, study: Study, jobs: Sequence[Job], collects: bool) -> None:
        self.study, self.collects = study, collects
        self.total, self.position, self.running = sum(map(len, jobs)), 0, ""
        self.console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("cells", total=self.total)

    def __enter__(self) -> _Screen:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def begin(self, job: Job) -> None:
        self.running = job[0].name
        self._update("starting", None, None)

    def steps(self, done: int, total: int, figures: dict[str, float]) -> None:
        self._update(f"loss {figures['loss']:.4g}" if figures.get("loss") else "training", done, total)

    def epoch(self, row: dict[str, object]) -> None:
        """The bar has told."""

    def images(self, name: str, done: int, total: int) -> None:
        self._update(name, done, total)

    def say(self, sentence: str) -> None:
        self.console.print(f"Note: {sentence}", soft_wrap=True, markup=False)

    def told(self, cell: Cell, seconds: float) -> None:
        self.position += 1
        error = self.study.record(cell).get("error")
        outcome = f"failed: {error}" if error else f"{seconds:.1f} s"
        self.console.print(f"{self.position}/{self.total} {cell.name}: {outcome}", soft_wrap=True, markup=False)
        if self.collects:
            self.study.collect()

    def ended(self, job: Job, seconds: float, status: int) -> None:
        """A process that carried out a job, or died of it."""
        for cell in job:
            if not self.study.record(cell):
                self.study.fail(cell, f"its process ended with status {status}; its log is in {self.study.out / LOGS}.")
            self.told(cell, seconds)
        self.bar.update(self.task, completed=self.position)

    def _update(self, words: str, done: int | None, total: int | None) -> None:
        description = f"{self.position + 1}/{self.total} {self.running}: {words}"
        self.bar.update(self.task, completed=done or 0, total=total, description=description)


def _show(study: Study, wanted: Sequence[Cell], form: Format, quoted: bool) -> None:
    """Write what is there, print the table, and say what is missing."""
    study.collect()
    table = study_table(study, quoted) if study.grid.table else None
    console = Console(stderr=True, highlight=False)
    if table is not None:
        renderers = {
            "table.md": table_forms.to_markdown,
            "table.tex": table_forms.to_latex,
            "table.csv": table_forms.to_csv,
        }
        for name, render in renderers.items():
            study.write(name, render(table))
        formatted(table, form, None)
    else:
        for sentence in missing_notes(study):
            console.print(sentence, soft_wrap=True, markup=False)
    if study.grid.figure is not None:
        study.write(FIGURE, figure_csv(study, table))
        console.print(f"The figure's data are in {study.out / FIGURE}.", soft_wrap=True, markup=False)
    _say_absent(study, wanted, console)


def _say_absent(study: Study, wanted: Sequence[Cell], console: Console) -> None:
    waiting = Counter(name for cell in wanted if not study.done(cell) for name in study.absent(cell))
    where = "" if study.root is None else f" --root {shlex.quote(str(study.root))}"
    for name, count in waiting.items():
        cells = "1 cell needs" if count == 1 else f"{count} cells need"
        console.print(f"{cells} {name}: dsui data get {name}{where}", soft_wrap=True, markup=False)


def _list(study: Study, wanted: Sequence[Cell], jobs: Sequence[Job], workers: int) -> None:
    seconds = dict(zip((job[0].key for job in jobs), study.training_seconds(jobs), strict=True))
    states = [study.state(cell) for cell in wanted]
    for cell, (kind, detail) in zip(wanted, states, strict=True):
        needs = (
            f"training: {_duration(seconds[cell.key])}" if seconds.get(cell.key) != 0 and cell.key in seconds else ""
        )
        typer.echo("  ".join(filter(None, (f"{kind:<12}", cell.name, detail, needs))))
    counts = Counter(kind for kind, _ in states)
    typer.echo(f"{len(wanted)} cells: {', '.join(f'{count} {kind}' for kind, count in counts.items())}.")
    known = [value for value in seconds.values() if value is not None]
    unknown = len(seconds) - len(known)
    if jobs:
        typer.echo(
            f"Training still to come: {_duration(sum(known) / workers) if known else 'unknown'} on {workers} "
            f"worker{'s' if workers > 1 else ''}{f', and {unknown} runs unlike any so far' if unknown else ''}. "
            "Evaluation comes on top."
        )
    _say_absent(study, wanted, Console(highlight=False))


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def _write_script(study: Study, jobs: Sequence[Job], command: Sequence[str], gpu: bool) -> None:
    if not jobs:
        raise DsuiError("no cell is left to run; leave out --engine slurm to see the table.")
    out = study.out.absolute()
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    study.write(SCRIPT, slurm_script(study.grid.name, jobs, command, out / LOGS, gpu))
    typer.echo(
        f"{out / SCRIPT} holds {len(jobs)} tasks. Start them, and for the table repeat this without --engine slurm:"
    )
    typer.echo(f"sbatch {shlex.quote(str(out / SCRIPT))}")


def _command(name: str, study: Study, device: str, cache: bool) -> list[str]:
    """This study from any folder; `--cell` is to follow."""
    grid = str(Path(name).expanduser().absolute()) if name.lower().endswith((".yaml", ".yml")) else name
    folders = {"--out": study.out, "--runs": study.runs, "--root": study.root}
    named = [part for option, path in folders.items() if path is not None for part in (option, str(path.absolute()))]
    return [
        sys.executable,
        "-m",
        "dsui",
        "reproduce",
        grid,
        *named,
        "--device",
        device,
        *(["--cache"] if cache else []),
    ]


def _named(study: Study, keys: str) -> list[Cell]:
    cells = {cell.key: cell for cell in study.grid.cells}
    for key in keys.split(","):
        if key not in cells:
            raise DsuiError(f"{study.grid.name} has no cell {key}, so it was changed; start the study again.")
        if absent := study.absent(cells[key]):
            raise DsuiError(
                f"{cells[key].name} needs {', '.join(absent)}, which is not here; run dsui data get {absent[0]}."
            )
    return [cells[key] for key in keys.split(",")]


def _filtered(grid: Grid, only: Sequence[str], seeds: str) -> list[Cell]:
    cells = list(grid.cells)
    for choice in only:
        fact, sign, values = choice.partition("=")
        if not sign or fact not in FACTS:
            raise DsuiError(f"--only {choice} is no choice; write --only method=dsui, with one of {', '.join(FACTS)}.")
        kept = chosen(f"{fact} in this grid", values, map(FACTS[fact], grid.cells))
        cells = [cell for cell in cells if FACTS[fact](cell) in kept]
    if seeds:
        kept = chosen("seed in this grid", seeds, (str(cell.config.seed) for cell in grid.cells))
        cells = [cell for cell in cells if str(cell.config.seed) in kept]
    if not cells:
        raise DsuiError("no cell fits all of --only and --seeds; loosen them.")
    return cells
