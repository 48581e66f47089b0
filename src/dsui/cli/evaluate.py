"""`dsui evaluate`: how well trained runs detect their own errors and foreign images."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import (
    Device,
    Foreign,
    KeepOutputs,
    OwnFunction,
    Root,
    SkipBad,
    allow_function,
    check_name,
    parse_foreign,
    parse_names,
    select_device,
    split_names,
)
from dsui.cli.errors import UsageError
from dsui.cli.names import completion
from dsui.cli.output import Format, TableFormat, check_format, write_table
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line, stdout_console
from dsui.cli.verdict import print_verdict, verdict_of_rows
from dsui.errors import DsuiError
from dsui.excerpt import excerpt
from dsui.score_table import NAMES, detector_scores

if TYPE_CHECKING:
    from dsui.evaluation.results import ResultRow
    from dsui.evaluation.verdict import Verdict

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
            help=f"all, or some of {', '.join(names.tasks())}.  [default: all but fgsm, which takes longest]",
            autocompletion=completion(lambda: ("all", *names.tasks())),
        ),
    ] = "",
    foreign: Foreign = "",
    scores: Annotated[
        str,
        typer.Option(
            "--scores",
            "--score",
            metavar="NAMES",
            help="Scores to show, or all; the results file always holds all.  [default: the recommended one and those "
            "of --detectors; in files all]",
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
        typer.Option(
            metavar="NUMBERS", help="Attack by FGSM with these strengths, for pixels from 0 to 1, as in 0.1,0.2."
        ),
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
    (fgsm, only when asked for). A verdict says what this means: whether to use the model, why, and what to do next.
    Results are added to RUN/results.jsonl, or to --out FILE.jsonl where runs are read-only, and a table is printed for
    each task; --json prints one JSON object per line, of which the first also holds the verdict.

    Example: dsui evaluate runs/cifar10-0 --tasks misclassification,ood
    """
    rows_file = out if out is not None and out.suffix.lower() == ROWS else None
    out = None if rows_file else out
    check_format(table_format, out, as_json)
    task_names = parse_names("task", tasks, names.tasks()) if tasks not in {"", "all"} else None
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
                task_names,
                foreign_names,
                strengths or EPSILONS,
                torch_device,
                attacks=tasks == "all" or strengths is not None,
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
        if (verdict := verdict_of_rows(facts, results, part)) is not None:
            name = f"{facts.name}: " if len(runs) > 1 else ""
            if on_terminal and not (as_json or quiet):
                print_verdict(stdout_console(), verdict, name)
            elif not as_json:
                console.print(f"{name}{verdict.short}", soft_wrap=True)
        if as_json:
            _print_rows(rows, verdict)
        if not on_terminal:
            write_table(run_table(_select_scores(rows, scores or "all", detectors)), table_format, out)
        elif not (as_json or quiet):
            shown = _select_scores(rows, scores, detectors)
            _print_questions(shown, scores == "all", strengths is not None or task_names is not None)
            hidden = len({row.score for row in rows}) - len({row.score for row in shown})
            if hidden and not scores:
                console.print(f"{hidden} more scores are in {results}; --scores all shows them.")


def _print_rows(rows: list[ResultRow], verdict: Verdict | None) -> None:
    """One JSON object a line. The first row also has a field `verdict`, which readers of rows ignore."""
    for number, row in enumerate(rows):
        line = row.to_json()
        if number == 0 and verdict is not None:
            line = json.dumps(json.loads(line) | {"verdict": verdict.to_mapping()})
        print_line(line)


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
    """The rows of accuracy and of `scores`; by default of the recommended one and of the detectors that were named."""
    from dsui.report.significance import STAND_IN

    available = list(dict.fromkeys(row.score or "" for row in rows if "accuracy" not in row.metrics))
    usual = [STAND_IN, *(detector_scores(name)[0] for name in detectors)]
    selected = parse_names("score", scores, available) if scores else usual
    return [row for row in rows if "accuracy" in row.metrics or row.score in selected]


def _print_questions(rows: list[ResultRow], every_stream: bool, every_attack: bool) -> None:
    from dsui.cli.terminal import stdout_console
    from dsui.report.comparison_tables import run_by_question
    from dsui.report.comparison_terminal import to_terminal

    console = stdout_console()
    tables = run_by_question(rows, every_stream=every_stream, every_attack=every_attack)
    console.print(to_terminal(tables, console.width, console.is_terminal))


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
