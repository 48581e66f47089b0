"""`dsui evaluate`: what trained runs know of their own errors and of foreign images."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from dsui.cli.bars import Bars
from dsui.cli.choice import chosen
from dsui.cli.device import device_type
from dsui.cli.formats import Format, formatted
from dsui.detectors import registry as detectors
from dsui.errors import DsuiError
from dsui.evaluation.cache import OutputCache
from dsui.evaluation.model import RunFacts, run_facts
from dsui.evaluation.results import Row, append
from dsui.evaluation.sources import Part, Sources
from dsui.evaluation.tasks import EPSILONS, TASKS, Evaluation
from dsui.report.run_table import run_table
from dsui.training.run_folder import RESULTS


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.", metavar="RUN...")],
    tasks: Annotated[str, typer.Option(help=f"all, or a list of {', '.join(TASKS)}.")] = "all",
    foreign: Annotated[str, typer.Option(help="Sets for the ood task; by default all that are there.")] = "",
    scores: Annotated[str, typer.Option(help="Scores to show; all are written.")] = "",
    detector: Annotated[str, typer.Option("--detectors", help="all, or a list of post-hoc detectors.")] = "",
    epsilons: Annotated[str, typer.Option(help="Strengths of the attack, in pixel units of 0 to 1.")] = "",
    part: Annotated[str, typer.Option("--on", help="In-domain images: test, or held-out.")] = "test",
    method: Annotated[
        str | None, typer.Option("--as", help="Predict with another method that takes the same weights: mc-dropout.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="folder:PATH: leave out unreadable files.")] = False,
    cache: Annotated[bool, typer.Option(help="Keep the outputs in the run's folder.")] = True,
    out: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.terminal,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results rows as JSON lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Put the five questions to trained runs; rows go to RUN/results.jsonl, a table to the terminal.

    Example: dsui evaluate runs/cifar10-0 --tasks misclassification,ood --foreign svhn
    """
    chosen_tasks = chosen("task", tasks, TASKS)
    names = chosen("detector", detector, detectors.names()) if detector else []
    strengths = [_strength(text) for text in epsilons.split(",")] if epsilons else EPSILONS
    place = torch.device(device_type(device))
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if out is not None and len(runs) > 1:
        raise DsuiError(f"--out holds the table of one run and {len(runs)} are named; name one, or use `dsui compare`.")
    for facts in [run_facts(run, method) for run in runs]:
        append(facts.path / RESULTS, [])  # a folder that cannot be written to is found before any work is done
        sources = Sources(facts.config, facts.classes, _part(part), root, skip_bad)
        others = _foreign(foreign, sources)
        wanted = [task for task in chosen_tasks if tasks != "all" or _applies(task, facts, others)]
        with OutputCache(facts, place, keep=cache) as kept, Bars(console) as bar:
            asked = Evaluation(kept, sources, names, bar.show, bar.say)
            rows = [row for task in wanted for row in asked.rows(task, others, strengths)]
        append(facts.path / RESULTS, rows)
        shown = _shown(rows, scores)
        if as_json:
            for row in rows:
                typer.echo(row.to_json())
        if out is not None or not (as_json or quiet):
            formatted(run_table(shown), form, out)


def _shown(rows: list[Row], scores: str) -> list[Row]:
    """The rows of these scores, and of accuracy."""
    names = chosen("score", scores or "all", [row.score or "" for row in rows if row.task != "accuracy"])
    return [row for row in rows if row.task == "accuracy" or row.score in names]


def _foreign(text: str, sources: Sources) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(","))) if text else list(sources.foreign_names())
    for name in names:
        sources.foreign(name)  # a wrong name is found before any work is done
    return names


def _applies(task: str, facts: RunFacts, foreign: list[str]) -> bool:
    """Whether `--tasks all` means this task for this run."""
    return {"open-set": facts.config.known is not None, "ood": bool(foreign)}.get(task, True)


def _part(name: str) -> Part:
    if name == "test":
        return "test"
    if name == "held-out":
        return "held-out"
    raise DsuiError(f"--on {name} is unknown; choose test or held-out.")


def _strength(text: str) -> float:
    try:
        strength = float(text)
    except ValueError:
        strength = math.nan
    if not 0 <= strength < math.inf:
        raise DsuiError(f"--epsilons: {text!r} is no strength of an attack; write numbers from 0 on, as in 0.1,0.2.")
    return strength
