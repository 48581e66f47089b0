"""`dsui demo`: training, evaluation, comparison and report on images that need no download."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import stdout_console
from dsui.errors import Stopped

if TYPE_CHECKING:
    from rich.console import Console

    from dsui.experiments.study import Study
    from dsui.report.tables import Table as ResultsTable

NEXT = "dsui train --data folder:PATH --out runs/mine"
RUNS_SHARE = 0.75
"""Share of the runs in the whole time; the rest is the report."""


def demo(
    seeds: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Number of runs of each method.")] = 3,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", parser=parse_path, help="Where to keep the runs and report.html.")
    ] = Path("dsui-demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train DS-UI and three rivals on 256 digits, and compare them.

    Trains 24 small networks, asks each of them five questions, prints one table and writes an HTML report. Nothing is
    downloaded: the digits and photographs come with scikit-learn. It takes a minute or two on two CPU cores. You can
    stop it at any moment; the same command continues.

    Example: dsui demo --seeds 5
    """
    # The networks are so small that a second thread only waits; a second process uses a second core.
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or "1"
    from dsui.checks import require
    from dsui.cli.terminal import stderr_console
    from dsui.experiments import demonstration_runs

    require("jinja2", "matplotlib", "openTSNE")
    began = time.monotonic()
    study = demonstration_runs.open_study(out, seeds)
    try:
        table, report = _run(study, stderr_console(quiet))
    except KeyboardInterrupt as stop:
        done = sum(map(study.done, study.grid.cells))
        raise Stopped(
            f"stopped with {done} of {len(study.grid.cells)} runs done and nothing lost; the same command continues "
            f"(folder {out})."
        ) from stop
    seconds = time.monotonic() - began
    if as_json:
        _print_json(study, table, report, seconds)
    elif not quiet:
        _print_results(table, report, seconds)


def _run(study: Study, console: Console) -> tuple[ResultsTable, Path]:
    """Run what is left of the study and write the report, with one progress bar for all of it."""
    from rich.progress import TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn

    from dsui.cli.progress import ProgressBars
    from dsui.experiments import demonstration, demonstration_runs

    jobs = study.jobs(study.grid.cells)
    if jobs:
        console.print(f"{len(jobs)} networks to train on 256 digits and to evaluate; this takes a minute or two.")
    with ProgressBars(console, TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn()) as bars:
        task = bars.display.add_task("training and evaluating", total=1.0)
        if jobs:
            demonstration_runs.run_jobs(
                study, jobs, lambda fraction: bars.display.update(task, completed=RUNS_SHARE * fraction)
            )
        report, table = demonstration.report_path(study), demonstration.results_table(study)
        if not report.exists():
            bars.display.update(task, description="drawing the report", completed=RUNS_SHARE)
            demonstration.write_report(
                study,
                table,
                lambda done, total: bars.display.update(task, completed=RUNS_SHARE + (1 - RUNS_SHARE) * done / total),
            )
    return table, report


def _print_results(table: ResultsTable, report: Path, seconds: float) -> None:
    from rich.table import Table

    from dsui.experiments import demonstration
    from dsui.report import table_forms

    console = stdout_console()
    console.print(table_forms.to_terminal(table, console.width, console.is_terminal))
    glossary = Table.grid(padding=(0, 2))
    for term, meaning in demonstration.glossary(table):
        glossary.add_row(term, meaning, style="dim")
    console.print("", glossary, "")
    console.print(demonstration.verdict(table), style="bold")
    console.print(demonstration.CAVEAT)
    for line in ("", f"The report is {report}; everything took {seconds:.0f} s.", f"Next, your own images: {NEXT}"):
        console.print(line, soft_wrap=True, markup=False)


def _print_json(study: Study, table: ResultsTable, report: Path, seconds: float) -> None:
    from dsui.experiments import demonstration
    from dsui.report import table_forms
    from dsui.runs.folder import RESULTS

    print_json(
        {
            "table": json.loads(table_forms.to_json(table)),
            "verdict": demonstration.verdict(table),
            "caveat": demonstration.CAVEAT,
            "report": report,
            "results": study.out / RESULTS,
            "runs": study.runs,
            "seconds": round(seconds, 1),
        }
    )
