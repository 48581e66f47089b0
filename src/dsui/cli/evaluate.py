"""`dsui evaluate`: what trained runs know of their own errors and of foreign images."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.choice import WrongUsage, chosen, foreign_sets, known, listed
from dsui.cli.formats import Form, Format, TableFile, check_form, formatted
from dsui.cli.names import completion
from dsui.cli.options import Device, Foreign, Json, KeepOutputs, Quiet, Root, SkipBad, given_path
from dsui.score_table import is_variant

if TYPE_CHECKING:
    from dsui.evaluation.results import ResultRow

PARTS = ("test", "held-out")


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.", metavar="RUN", parser=given_path)],
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            "--task",
            metavar="NAMES",
            help=f"all, or a list of {', '.join(names.tasks())}.",
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
            help="all, or scores to show; all are written.",
            autocompletion=completion(lambda: ("all", *names.scores())),
        ),
    ] = "",
    detector: Annotated[
        str,
        typer.Option(
            "--detectors",
            metavar="NAMES",
            help="all, or a list of post-hoc detectors, as in knn,vim.",
            autocompletion=completion(lambda: ("all", *names.detectors())),
        ),
    ] = "",
    epsilons: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Strengths of the attack, in pixel units of 0 to 1.")
    ] = "",
    part: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="PART",
            help="In-domain images: test, or held-out.",
            autocompletion=completion(lambda: PARTS),
        ),
    ] = "test",
    method: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="METHOD",
            help="Predict with another method that trains as the run's: mc-dropout for msp, dsui-density for dsui.",
            autocompletion=completion(names.methods),
        ),
    ] = None,
    root: Root = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    out: TableFile = None,
    form: Form = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Does a run know its errors, foreign images, unknown classes, noise and attacks?

    Rows go to RUN/results.jsonl and a table to the terminal; with --json the rows, one to a line.

    Example: dsui evaluate runs/cifar10-0 --tasks misclassification,ood
    """
    check_form(form, out, as_json)
    chosen_tasks = chosen("task", tasks, names.tasks())
    chosen_detectors = chosen("detector", detector, names.detectors()) if detector else []
    strengths = [_strength(text) for text in epsilons.split(",")] if epsilons else None
    others = foreign_sets(foreign)
    known("part", part, PARTS)
    known("method", method or "dsui", names.methods())
    if out is not None and len(runs) > 1:
        raise WrongUsage(
            f"--out holds the table of one run and {len(runs)} are named; name one, or use `dsui compare`."
        )
    if form in {Format.csv, Format.json} and len(runs) > 1:
        raise WrongUsage(
            f"--format {form.value} holds one run and {len(runs)} are named; use --json or `dsui compare`."
        )

    from dsui.cli.bars import Bars, notes
    from dsui.cli.device import command_device
    from dsui.evaluation.evaluate import evaluate as evaluate_run
    from dsui.evaluation.results import append
    from dsui.evaluation.tasks import EPSILONS
    from dsui.report.run_table import run_table
    from dsui.runs.folder import RESULTS
    from dsui.runs.model import run_facts

    _check_scores(scores)
    place = command_device(device)
    console = notes(quiet)
    for facts in [run_facts(run, method) for run in runs]:
        append(facts.path / RESULTS, [])  # a folder that cannot be written to is found before any work is done
        with Bars(console) as bar:
            rows = evaluate_run(
                facts,
                None if tasks == "all" else chosen_tasks,
                others,
                strengths or EPSILONS,
                place,
                detectors=chosen_detectors,
                part="test" if part == "test" else "held-out",
                root=root,
                skip_bad=skip_bad,
                keep_outputs=cache,
                progress=bar.show,
                warn=bar.say,
            )
        append(facts.path / RESULTS, rows)
        on_screen = out is None and form is Format.terminal
        shown = _shown(rows, scores if scores or on_screen else "all", chosen_detectors)
        hidden = len({row.score for row in rows}) - len({row.score for row in shown})
        if as_json:
            for row in rows:
                typer.echo(row.to_json())
        if out is not None or not (as_json or (quiet and form is Format.terminal)):
            formatted(run_table(shown), form, out)
            if hidden and on_screen and not scores:
                console.print(f"{hidden} more scores are in {facts.path / RESULTS}; --scores all shows them.")


def _check_scores(scores: str) -> None:
    """A misspelled one is refused before any work."""
    from dsui.scores import COMMON, detector_scores, is_misspelled

    detectors = [score for name in names.detectors() for score in detector_scores(name)]
    for name in listed(scores):
        if is_misspelled(name, detectors):
            known("score", name, (*COMMON, *detectors))


def _shown(rows: list[ResultRow], scores: str, detectors: list[str]) -> list[ResultRow]:
    """The rows of these scores, by default all but variants that are not a chosen detector's, and those of accuracy."""
    there = list(dict.fromkeys(row.score or "" for row in rows if row.task != "accuracy"))
    chosen_detectors = {name.replace("-", "_") for name in detectors}
    usual = [name for name in there if name in chosen_detectors or not is_variant(name)]
    wanted = chosen("score", scores, there) if scores else usual
    return [row for row in rows if row.task == "accuracy" or row.score in wanted]


def _strength(text: str) -> float:
    try:
        strength = float(text)
    except ValueError:
        strength = math.nan
    if not 0 <= strength < math.inf:
        raise WrongUsage(f"--epsilons: {text!r} is no strength of an attack; write numbers from 0 on, as in 0.1,0.2.")
    return strength
