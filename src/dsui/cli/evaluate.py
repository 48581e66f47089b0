"""`dsui evaluate`: how well trained runs detect their own errors and foreign images."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import (
    Device,
    Foreign,
    Json,
    KeepOutputs,
    OwnFunction,
    Quiet,
    Root,
    SkipBad,
    allow_function,
    check_name,
    parse_foreign,
    parse_names,
    parse_path,
    select_device,
    split_names,
)
from dsui.cli.errors import UsageError
from dsui.cli.names import completion
from dsui.cli.output import Format, TableFormat, check_format, write_table
from dsui.cli.terminal import print_line
from dsui.errors import DsuiError
from dsui.excerpt import excerpt
from dsui.score_table import NAMES, detector_scores, is_variant

if TYPE_CHECKING:
    from dsui.evaluation.results import ResultRow

PARTS = ("test", "held-out")
ROWS = ".jsonl"
"""Ends the name of a file of results rows."""


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.", metavar="RUN", parser=parse_path)],
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            "--task",
            metavar="NAMES",
            help=f"all, or some of {', '.join(names.tasks())}.",
            autocompletion=completion(lambda: ("all", *names.tasks())),
        ),
    ] = "all",
    foreign: Foreign = "",
    scores: Annotated[
        str,
        typer.Option(
            "--scores",
            "--score",
            metavar="NAMES",
            help="Scores to show, or all; the results file always holds all.  [default: all but variants of others]",
            autocompletion=completion(lambda: ("all", *names.scores())),
        ),
    ] = "",
    detector: Annotated[
        str,
        typer.Option(
            "--detectors",
            metavar="NAMES",
            help=f"Post-hoc detectors to add: all, or some of {', '.join(names.detectors())}.",
            autocompletion=completion(lambda: ("all", *names.detectors())),
        ),
    ] = "",
    epsilons: Annotated[
        str,
        typer.Option(metavar="NUMBERS", help="Strengths of the FGSM attack, for pixels from 0 to 1, as in 0.1,0.2."),
    ] = "",
    part: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="PART",
            help="In-domain images: test or held-out.",
            autocompletion=completion(lambda: PARTS),
        ),
    ] = "test",
    method: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="METHOD",
            help="Predict with another method that can use the weights: mc-dropout for msp, dsui-density for dsui.",
            autocompletion=completion(names.methods),
        ),
    ] = None,
    root: Root = None,
    device: Device = "auto",
    own_function: OwnFunction = None,
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=parse_path,
            help="Write the table to this file; .csv, .json and .tex choose its format. A .jsonl file gets the results "
            "rows, which are then not added to RUN/results.jsonl; all other names are Markdown.",
        ),
    ] = None,
    table_format: TableFormat = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how well runs detect errors and foreign images.

    Each task asks whether the uncertainty tells sound images from others: from those that are predicted wrongly
    (misclassification), images of other data sets (ood) or of unknown classes (open-set), noise, and attacked images
    (fgsm). Results are added to RUN/results.jsonl, or to --out FILE.jsonl where runs are read-only, and a table is
    printed; --json prints one JSON object per line.

    Example: dsui evaluate runs/cifar10-0 --tasks misclassification,ood
    """
    rows_file = out if out is not None and out.suffix.lower() == ROWS else None
    out = None if rows_file else out
    check_format(table_format, out, as_json)
    task_names = parse_names("task", tasks, names.tasks())
    detectors = parse_names("detector", detector, names.detectors()) if detector else []
    strengths = [_parse_epsilon(text) for text in epsilons.split(",")] if epsilons else None
    foreign_names = parse_foreign(foreign)
    check_name("part", part, PARTS)
    check_name("method", method or "dsui", names.methods())
    if out is not None and len(runs) > 1:
        raise UsageError(
            f"--out holds the table of one run and {len(runs)} are named; name one, or use `dsui compare`."
        )
    if table_format in {Format.csv, Format.json} and len(runs) > 1:
        raise UsageError(
            f"--format {table_format.value} holds one run and {len(runs)} are named; use --json or `dsui compare`."
        )

    allow_function(own_function)
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.evaluation.evaluate import evaluate as evaluate_run
    from dsui.evaluation.results import append
    from dsui.evaluation.tasks import EPSILONS
    from dsui.report.run_table import run_table
    from dsui.runs.folder import RESULTS
    from dsui.runs.model import run_facts

    _check_scores(scores)
    torch_device = select_device(device)
    console = stderr_console(quiet)
    for facts in [run_facts(run, method) for run in runs]:
        results = rows_file or facts.path / RESULTS
        _check_writable(results, facts.path)
        with ProgressBars(console) as bars:
            rows = evaluate_run(
                facts,
                None if tasks == "all" else task_names,
                foreign_names,
                strengths or EPSILONS,
                torch_device,
                detectors=detectors,
                part="test" if part == "test" else "held-out",
                root=root,
                skip_bad=skip_bad,
                keep_outputs=cache,
                progress=bars.update,
                warn=bars.note,
            )
        append(results, rows)
        on_terminal = out is None and table_format is Format.terminal
        shown = _select_scores(rows, scores if scores or on_terminal else "all", detectors)
        hidden = len({row.score for row in rows}) - len({row.score for row in shown})
        if as_json:
            for row in rows:
                print_line(row.to_json())
        if out is not None or not (as_json or (quiet and table_format is Format.terminal)):
            write_table(run_table(shown), table_format, out)
            if hidden and on_terminal and not scores:
                console.print(f"{hidden} more scores are in {results}; --scores all shows them.")


def _check_writable(results: Path, run: Path) -> None:
    """Find a folder that cannot be written to before any work is done."""
    from dsui.evaluation.results import append

    try:
        append(results, [])
    except DsuiError as error:
        if results.parent != run:
            raise
        why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise DsuiError(
            f"{results} could not be written ({why}); keep the rows elsewhere with --out FILE{ROWS}."
        ) from error


def _check_scores(scores: str) -> None:
    """Find a mistyped score before any work is done."""
    from dsui.scores import is_misspelled

    of_detectors = [score for name in names.detectors() for score in detector_scores(name)]
    for name in split_names(scores):
        if is_misspelled(name, of_detectors):
            check_name("score", name, (*NAMES, *of_detectors))


def _select_scores(rows: list[ResultRow], scores: str, detectors: list[str]) -> list[ResultRow]:
    """The rows of accuracy and of `scores`; by default of all scores but variants that no detector was named for."""
    available = list(dict.fromkeys(row.score or "" for row in rows if row.task != "accuracy"))
    chosen = {name.replace("-", "_") for name in detectors}
    usual = [name for name in available if name in chosen or not is_variant(name)]
    selected = parse_names("score", scores, available) if scores else usual
    return [row for row in rows if row.task == "accuracy" or row.score in selected]


def _parse_epsilon(text: str) -> float:
    try:
        epsilon = float(text)
    except ValueError:
        epsilon = math.nan
    if not 0 <= epsilon < math.inf:
        raise UsageError(
            f"--epsilons: {excerpt(text)} is not the strength of an attack; write numbers from 0 up, as in 0.1,0.2."
        )
    return epsilon
