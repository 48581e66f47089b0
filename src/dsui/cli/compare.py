"""`dsui compare`: methods beside each other, with means and deviations over runs, and marks of what is significant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import check_name, parse_names
from dsui.cli.errors import UsageError
from dsui.cli.names import completion
from dsui.cli.output import Format, TableFile, TableFormat, check_format, write_table
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from rich.console import Console

    from dsui.evaluation.results import ResultRow
    from dsui.report.comparison_tables import QuestionTables

METRICS = ("accuracy", "auroc", "aupr", "aurc")
SCORES = ("max_probability", "entropy", "uncertainty", "prediction")
"""The columns of the one wide table, where none are asked for."""
HINT = "More: --scores all or NAMES, --metrics all or NAMES; --wide or --out FILE for one table of all."
MOST_NOTES = 5
"""Of results files, at most this many unusable lines are named."""


def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of evaluated runs.", metavar="RUN", parser=parse_path)
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Also read this results file, or all results files in this folder."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Method that the others are tested against.  [default: dsui]",
            autocompletion=completion(names.methods),
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="NAMES", help="Show only these data sets.", autocompletion=completion(names.data))
    ] = "",
    task: Annotated[
        str,
        typer.Option(
            "--task", "--tasks", metavar="NAMES", help="Show only these tasks.", autocompletion=completion(names.tasks)
        ),
    ] = "",
    score: Annotated[
        str | None,
        typer.Option(
            "--score",
            "--scores",
            metavar="NAMES",
            help="Show these scores, or all.  [default: the recommended one]",
            autocompletion=completion(lambda: ("all", *names.scores())),
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            "--metrics",
            metavar="NAMES",
            help="Show these metrics, or all.  [default: two or three for each question]",
            autocompletion=completion(lambda: ("all", *names.metrics())),
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide", help="One table with a column for every figure, as --out and the other formats have it."
        ),
    ] = False,
    published: Annotated[bool, typer.Option("--published", help="Add the figures printed in the paper.")] = False,
    welch: Annotated[
        bool, typer.Option("--welch", help="Use Welch's test, which does not assume equal variances.")
    ] = False,
    holm: Annotated[
        bool, typer.Option("--holm", help="Correct p-values for the number of tests in the table.")
    ] = False,
    out: TableFile = None,
    table_format: TableFormat = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over their runs.

    Prints a table for each question: accuracy, errors, foreign images, noise. Cells are means and deviations over
    the runs of each method; marks say where a method differs significantly from the reference. Files and the formats
    for programs hold one wide table of more scores.

    Example: dsui compare runs/* --task misclassification --score entropy
    """
    check_format(table_format, out, as_json)
    from dsui.evaluation.paper_tables import paper_rows
    from dsui.report import comparison
    from dsui.report.comparison_lines import with_prediction_stream
    from dsui.report.comparison_questions import usual_figures
    from dsui.report.comparison_tables import compare_by_question

    rows = _read_rows(runs or [], results, quiet)
    quoted = [with_prediction_stream(row) for row in paper_rows()] if published else []
    figures = available = comparison.available(rows, quoted)
    one_table = wide or as_json or out is not None or table_format is not Format.terminal
    defaults = {"score": SCORES, "metric": METRICS} if one_table else {"score": ("all",), "metric": ("all",)}
    for field, text in {"data": data or "all", "task": task or "all", "score": score, "metric": metric}.items():
        choices = [value for figure in available if (value := getattr(figure, field)) is not None]
        kind = "data set" if field == "data" else field
        kept = defaults[field] if text is None else parse_names(kind, text or "all", choices)
        figures = [figure for figure in figures if "all" in kept or getattr(figure, field) in (None, *kept)]
    if not one_table:
        asked = {"every_score": score is not None, "every_metric": metric is not None, "every_attack": "fgsm" in task}
        figures = usual_figures(figures, [*rows, *quoted], **asked)
    if not figures:
        raise DsuiError("no figure is left; loosen --data, --task, --score or --metric.")
    against = reference or "dsui"
    if one_table:
        table = comparison.compare(
            rows, figures, quoted=quoted, reference=against, equal_variances=not welch, correct=holm
        )
        lines = [line.label for line in table.lines]
    else:
        tables = compare_by_question(
            rows, figures, quoted=quoted, reference=against, equal_variances=not welch, correct=holm
        )
        lines = list(tables.names)
    if reference is not None:
        check_name("method for --reference", reference, [*(row.method for row in rows), *lines])
    if not one_table:
        _print_questions(tables, HINT if score is None and metric is None and not quiet else "")
        return
    if as_json:
        write_table(table, Format.json, None)
    if out is not None or not as_json:
        write_table(table, table_format, out)


def _print_questions(tables: QuestionTables, hint: str) -> None:
    from rich.text import Text

    from dsui.cli.terminal import stdout_console
    from dsui.report.comparison_terminal import to_terminal

    console = stdout_console()
    console.print(to_terminal(tables, console.width, console.is_terminal))
    if hint:
        console.print(Text(hint, style="dim"))


def _read_rows(runs: list[Path], results: Path | None, quiet: bool) -> list[ResultRow]:
    """All usable rows; notes on stderr say what was left out and why."""
    from dsui.cli.progress import print_note
    from dsui.cli.terminal import stderr_console
    from dsui.evaluation.results import read
    from dsui.report.comparison_lines import with_prediction_stream

    console = stderr_console(quiet)
    rows: list[ResultRow] = []
    problems: list[str] = []
    outdated = 0
    for path in _results_files(runs, results, console):
        found, unusable = read([path])
        current = _rows_of_current_weights(found, path.parent)
        rows, problems, outdated = rows + current, problems + unusable, outdated + len(found) - len(current)
    if outdated:
        problems.append(f"{outdated} rows are left out: their weights are no longer there.")
    more = [f"{len(problems) - MOST_NOTES} more lines cannot be used."] if len(problems) > MOST_NOTES else []
    for sentence in [*problems[:MOST_NOTES], *more]:
        print_note(console, sentence)
    if not rows:
        raise DsuiError("there are no results to compare; run `dsui evaluate` first.")
    of_test_images = [row for row in rows if row.of_test_images]
    if of_test_images and len(of_test_images) < len(rows):
        print_note(console, "rows of held-out images are left out, since there are rows of test images.")
    return [with_prediction_stream(row) for row in of_test_images or rows]


def _results_files(runs: list[Path], results: Path | None, console: Console) -> list[Path]:
    from dsui.cli.progress import print_note
    from dsui.runs.folder import RESULTS

    if missing := [run for run in runs if not run.is_dir()]:
        raise DsuiError(f"{missing[0]} is not the folder of a run; name the --out of a `dsui train`.")
    paths = []
    for run in runs:
        if (run / RESULTS).is_file() and (run / RESULTS).stat().st_size > 0:
            paths.append(run / RESULTS)
        else:
            print_note(console, f"{run} has no results yet; run `dsui evaluate {run}`.")
    if results is not None:
        paths += sorted(results.glob("*.jsonl")) if results.is_dir() else [results]
    if not runs and results is None:
        raise UsageError("name evaluated runs, or a file or folder of results with --results.")
    if not paths and results is not None:
        raise DsuiError(f"{results} holds no .jsonl file; name evaluated runs, or a file or folder of results.")
    return paths


def _rows_of_current_weights(rows: list[ResultRow], folder: Path) -> list[ResultRow]:
    """Without rows of weights that the run had before it was trained again.

    Older versions did not note the weights of a row. Such rows count as rows of the current weights, and newer rows
    replace them.
    """
    from dsui.runs.folder import WEIGHTS
    from dsui.runs.model import fingerprint, short_fingerprint

    if not (folder / WEIGHTS).exists():
        return rows
    current = short_fingerprint(fingerprint(folder))
    return [replace(row, weights=current) for row in rows if row.weights in {None, current}]
