"""`dsui compare`: methods beside each other, with deviations over runs and marks of significance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from dsui.cli.choice import chosen
from dsui.cli.formats import Format, formatted
from dsui.errors import DsuiError
from dsui.evaluation.published import PublishedRow, published
from dsui.evaluation.results import Row, read
from dsui.report.comparison import Figure, available
from dsui.report.comparison import compare as comparison
from dsui.training.run_folder import RESULTS

METRICS = "accuracy,auroc,aupr,aurc"
SCORES = "max_probability,entropy,uncertainty,prediction"
NOTES = 5
"""Most lines of results files that are named because they cannot be used."""
AnyRow = TypeVar("AnyRow", Row, PublishedRow)


def compare(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of evaluated runs.", metavar="[RUN...]")] = None,
    results: Annotated[Path | None, typer.Option(help="A results file, or a folder of them.")] = None,
    reference: Annotated[str, typer.Option(help="The method the others are tested against.")] = "dsui",
    data: Annotated[str, typer.Option(help="Only these data sets.")] = "",
    task: Annotated[str, typer.Option(help="Only these tasks.")] = "",
    score: Annotated[str, typer.Option(help="Only these scores.")] = SCORES,
    metric: Annotated[str, typer.Option(help="Only these metrics.")] = METRICS,
    quoted: Annotated[bool, typer.Option("--published", help="Beside the paper's own figures.")] = False,
    welch: Annotated[bool, typer.Option("--welch", help="Do not assume equal deviations.")] = False,
    holm: Annotated[bool, typer.Option("--holm", help="Correct for the number of tests in the table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.terminal,
) -> None:
    """Compare methods over their runs: means, deviations, and marks where they differ from the reference.

    Example: dsui compare runs/* --task misclassification --score max_probability
    """
    rows = _rows(runs or [], results)
    printed = [_with_stream(row) for row in published()] if quoted else []
    figures = available(rows, printed)
    for kind, text, known in (
        ("data set", data, [figure.data for figure in figures]),
        ("task", task, [figure.task for figure in figures]),
        ("score", "" if score == SCORES else score, [figure.score for figure in figures if figure.score]),
        ("metric", "" if metric == METRICS else metric, [figure.metric for figure in figures]),
    ):
        chosen(kind, text or "all", known)
    wanted = [
        figure
        for figure in figures
        if _among(figure.data, data)
        and _among(figure.task, task)
        and (figure.score is None or _among(figure.score, score))
        and _among(figure.metric, metric)
        and _belongs(figure)
    ]
    if not wanted:
        raise DsuiError("no figure is left; loosen --data, --task, --score or --metric.")
    table = comparison(rows, wanted, quoted=printed, reference=reference, equal_variances=not welch, correct=holm)
    references = dict.fromkeys([*(row.method for row in rows), *(line.label for line in table.lines)])
    if reference not in references:
        raise DsuiError(f"no row is of {reference!r}; choose --reference from {', '.join(references)}.")
    formatted(table, form, out)


def _rows(runs: list[Path], results: Path | None) -> list[Row]:
    paths = [run / RESULTS for run in runs]
    if results is not None:
        paths += sorted(results.glob("*.jsonl")) if results.is_dir() else [results]
    if not paths:
        where = "name evaluated runs" if results is None else f"{results} holds no .jsonl file; name evaluated runs"
        raise DsuiError(f"{where}, or a file or folder of results with --results.")
    rows, problems = read(paths)
    more = [f"{len(problems) - NOTES} more lines cannot be used."] if len(problems) > NOTES else []
    for sentence in [*problems[:NOTES], *more]:
        Console(stderr=True, highlight=False).print(f"Note: {sentence}", soft_wrap=True, markup=False)
    if not rows:
        raise DsuiError("there are no results to compare; run `dsui evaluate` first.")
    return [_with_stream(row) for row in rows]


def _with_stream(row: AnyRow) -> AnyRow:
    """The paper, and rows of before there were two streams, do not say that accuracy is that of the prediction."""
    return replace(row, score="prediction") if row.task == "accuracy" and row.score is None else row


def _belongs(figure: Figure) -> bool:
    """Accuracy is the accuracy task's; ranking metrics are those of the other tasks."""
    return (figure.metric == "accuracy") == (figure.task == "accuracy")


def _among(value: str, names: str) -> bool:
    return not names or value in {name.strip() for name in names.split(",")}
