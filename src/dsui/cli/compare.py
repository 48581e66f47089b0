"""`dsui compare`: methods beside each other, with deviations over runs and marks of significance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dsui.cli import names
from dsui.cli.choice import WrongUsage, chosen, known, listed
from dsui.cli.formats import Form, Format, TableFile, check_form, formatted
from dsui.cli.names import completion
from dsui.cli.options import Json, Quiet, given_path
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.evaluation.paper_tables import PaperRow
    from dsui.evaluation.results import ResultRow

METRICS = "accuracy,auroc,aupr,aurc"
SCORES = "max_probability,entropy,uncertainty,prediction"
NOTES = 5
"""Most lines of results files that are named because they cannot be used."""
AnyRow = TypeVar("AnyRow", "ResultRow", "PaperRow")


def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of evaluated runs.", metavar="RUN", parser=given_path)
    ] = None,
    results: Annotated[Path | None, typer.Option(metavar="PATH", help="A results file, or a folder of them.")] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="What the others are tested against, dsui by default.",
            autocompletion=completion(names.methods),
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="NAMES", help="Only these data sets.", autocompletion=completion(names.data))
    ] = "",
    task: Annotated[
        str,
        typer.Option(
            "--task", "--tasks", metavar="NAMES", help="Only these tasks.", autocompletion=completion(names.tasks)
        ),
    ] = "",
    score: Annotated[
        str,
        typer.Option(
            "--score", "--scores", metavar="NAMES", help="Only these scores.", autocompletion=completion(names.scores)
        ),
    ] = SCORES,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            "--metrics",
            metavar="NAMES",
            help="Only these metrics.",
            autocompletion=completion(names.metrics),
        ),
    ] = METRICS,
    quoted: Annotated[bool, typer.Option("--published", help="Beside the paper's own figures.")] = False,
    welch: Annotated[bool, typer.Option("--welch", help="Do not assume equal deviations.")] = False,
    holm: Annotated[bool, typer.Option("--holm", help="Correct for the number of tests in the table.")] = False,
    out: TableFile = None,
    form: Form = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over their runs.

    With deviations, and marks where a method differs significantly from the reference.

    Example: dsui compare runs/* --task misclassification --score entropy
    """
    check_form(form, out, as_json)
    from dsui.evaluation.paper_tables import paper_rows
    from dsui.report import comparison

    rows = _rows(runs or [], results, quiet)
    printed = [_with_stream(row) for row in paper_rows()] if quoted else []
    figures = comparison.available(rows, printed)
    wanted, usual = figures, {"score": SCORES, "metric": METRICS}
    for field, text in {"data": data, "task": task, "score": score, "metric": metric}.items():
        there = [value for figure in figures if (value := getattr(figure, field)) is not None]
        kind = "data set" if field == "data" else field
        kept = listed(text) if text == usual.get(field) else chosen(kind, text or "all", there)
        wanted = [figure for figure in wanted if getattr(figure, field) in (None, *kept)]
    if not wanted:
        raise DsuiError("no figure is left; loosen --data, --task, --score or --metric.")
    table = comparison.compare(
        rows, wanted, quoted=printed, reference=reference or "dsui", equal_variances=not welch, correct=holm
    )
    if reference is not None:
        lines = [*(row.method for row in rows), *(line.label for line in table.lines)]
        known("method for --reference", reference, lines)
    if as_json:
        formatted(table, Format.json, None)
    if out is not None or not as_json:
        formatted(table, form, out)


def _rows(runs: list[Path], results: Path | None, quiet: bool) -> list[ResultRow]:
    from dsui.cli.bars import notes
    from dsui.evaluation.results import read
    from dsui.runs.folder import RESULTS

    if lost := [run for run in runs if not run.is_dir()]:
        raise DsuiError(f"{lost[0]} is not the folder of a run; name the --out of a `dsui train`.")
    console = notes(quiet)
    evaluated = [run for run in runs if (run / RESULTS).is_file() and (run / RESULTS).stat().st_size > 0]
    for run in runs:
        if run not in evaluated:
            console.print(f"Note: {run} has no results yet; run `dsui evaluate {run}`.", soft_wrap=True, markup=False)
    paths = [run / RESULTS for run in evaluated]
    if results is not None:
        paths += sorted(results.glob("*.jsonl")) if results.is_dir() else [results]
    if not runs and results is None:
        raise WrongUsage("name evaluated runs, or a file or folder of results with --results.")
    if not paths and results is not None:
        raise DsuiError(f"{results} holds no .jsonl file; name evaluated runs, or a file or folder of results.")
    rows: list[ResultRow] = []
    problems: list[str] = []
    stale = 0
    for path in paths:
        found, wrong = read([path])
        kept = _of_present_weights(found, path.parent)
        rows, problems, stale = rows + kept, problems + wrong, stale + len(found) - len(kept)
    if stale:
        problems.append(f"{stale} rows are of weights that are no longer there, and left out.")
    more = [f"{len(problems) - NOTES} more lines cannot be used."] if len(problems) > NOTES else []
    for sentence in [*problems[:NOTES], *more]:
        console.print(f"Note: {sentence}", soft_wrap=True, markup=False)
    if not rows:
        raise DsuiError("there are no results to compare; run `dsui evaluate` first.")
    tested = [row for row in rows if row.of_test_images]
    if tested and len(tested) < len(rows):
        console.print("Note: rows of held-out images are left out, since there are rows of test images.")
    return [_with_stream(row) for row in tested or rows]


def _of_present_weights(rows: list[ResultRow], folder: Path) -> list[ResultRow]:
    """Rows of a file in the folder of a run, without those of weights that it held before it was trained anew; rows of
    before weights were noted are of these, and give way to later ones."""
    from dsui.runs.folder import WEIGHTS
    from dsui.runs.model import fingerprint, short_fingerprint

    if not (folder / WEIGHTS).exists():
        return rows
    present = short_fingerprint(fingerprint(folder))
    return [replace(row, weights=present) for row in rows if row.weights in {None, present}]


def _with_stream(row: AnyRow) -> AnyRow:
    """The paper, and rows of before there were two streams, do not say that accuracy is that of the prediction."""
    return replace(row, score="prediction") if row.task == "accuracy" and row.score is None else row
