"""`dsui demo`: the whole story on images that need no download."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import documents
from dsui.cli.options import Json, Quiet, given_path
from dsui.errors import Stopped

if TYPE_CHECKING:
    from rich.console import Console

    from dsui.experiments.study import Study
    from dsui.report.tables import Table as Figures

NEXT = "dsui train --data folder:PATH --backbone small --recipe demo --out runs/mine (with a GPU leave both out)"
RUNS = 0.75
"""The share of training and testing in the time; the rest is the report."""


def demo(
    seeds: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Runs of each method.")] = 3,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", parser=given_path, help="Folder for the runs and report.html.")
    ] = Path("dsui-demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train DS-UI and three rivals on 256 digits, and compare them.

    Five questions are put to 24 small networks, the answers printed as one table, and a report is written. Nothing is
    downloaded: digits and photographs come with scikit-learn. It takes a minute or two on two CPU cores; stopped at any
    moment, it goes on with what is left.

    Example: dsui demo --seeds 5
    """
    # The networks are so small that a second thread only waits; a second process is worth a second core.
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or "1"
    from dsui.checks import require
    from dsui.cli.bars import notes
    from dsui.experiments import demonstration_runs

    require("jinja2", "matplotlib", "openTSNE")
    began = time.monotonic()
    study = demonstration_runs.begin(out, seeds)
    try:
        table, report = _carry_out(study, notes(quiet))
    except KeyboardInterrupt as stop:
        done = sum(map(study.done, study.grid.cells))
        raise Stopped(
            f"stopped with {done} of {len(study.grid.cells)} runs done and nothing lost; go on with the same command "
            f"(folder {out})."
        ) from stop
    seconds = time.monotonic() - began
    if as_json:
        _show_document(study, table, report, seconds)
    elif not quiet:
        _show(table, report, seconds)


def _carry_out(study: Study, console: Console) -> tuple[Figures, Path]:
    """What is left to do, with one bar over all of it."""
    from rich.progress import TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn

    from dsui.cli.bars import Bars
    from dsui.experiments import demonstration, demonstration_runs

    jobs = study.jobs(study.grid.cells)
    if jobs:
        console.print(f"{len(jobs)} runs to train on 256 digits and to test; it takes a minute or two.")
    with Bars(console, TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn()) as bars:
        task = bars.bar.add_task("training and testing", total=1.0)
        if jobs:
            demonstration_runs.carry_out(study, jobs, lambda share: bars.bar.update(task, completed=RUNS * share))
        report, table = demonstration.report_path(study), demonstration.table(study)
        if not report.exists():
            bars.bar.update(task, description="drawing the report", completed=RUNS)
            demonstration.write_report(
                study,
                table,
                lambda done, total: bars.bar.update(task, completed=RUNS + (1 - RUNS) * done / total),
            )
    return table, report


def _show(table: Figures, report: Path, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from dsui.experiments import demonstration
    from dsui.report import table_forms

    console = Console(highlight=False)
    console.print(table_forms.to_terminal(table, console.width, console.is_terminal))
    words = Table.grid(padding=(0, 2))
    for word, meaning in demonstration.glossary(table):
        words.add_row(word, meaning, style="dim")
    console.print("", words, "")
    console.print(demonstration.verdict(table), style="bold")
    console.print(demonstration.CAVEAT)
    for line in ("", f"The report is {report}; all took {seconds:.0f} s.", f"Next, your own images: {NEXT}"):
        console.print(line, soft_wrap=True, markup=False)


def _show_document(study: Study, table: Figures, report: Path, seconds: float) -> None:
    from dsui.experiments import demonstration
    from dsui.report import table_forms
    from dsui.runs.folder import RESULTS

    documents.show(
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
