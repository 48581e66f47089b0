"""`dsui threshold`: what thresholds by coverage or by risk accept of test images, foreign images and noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import (
    Device,
    Foreign,
    KeepOutputs,
    OwnFunction,
    Root,
    SkipBad,
    allow_function,
    parse_foreign,
    select_device,
    split_names,
)
from dsui.cli.errors import UsageError
from dsui.cli.json_output import print_json
from dsui.cli.output import Format, TableFile, TableFormat, check_format, file_format, write_table, write_text
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.score_options import DetectorName, ForeignScore, Score, Two, parse_choice
from dsui.errors import DsuiError
from dsui.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsui.deploy.scorer import Chooser
    from dsui.limits import Criterion
    from dsui.runs.acceptance import Thresholds

COVERAGES, RISKS = "0.8,0.9,0.95,0.99", "0.01,0.02,0.05"


def threshold(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=parse_path)],
    coverage: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES", help=f"Shares to accept of images like the training images.  [default: {COVERAGES}]"
        ),
    ] = None,
    risk: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES", help=f"Shares of errors to allow among the accepted images.  [default: {RISKS}]"
        ),
    ] = None,
    score: Score = None,
    two: Two = False,
    foreign_score: ForeignScore = None,
    detector: DetectorName = None,
    save: Annotated[
        bool,
        typer.Option(
            "--save", help="Keep the threshold in the run, for `dsui predict` to use; give one --coverage or --risk."
        ),
    ] = False,
    foreign: Foreign = "",
    root: Root = None,
    device: Device = "auto",
    own_function: OwnFunction = None,
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    out: TableFile = None,
    table_format: TableFormat = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what different thresholds accept and reject, and keep one in the run.

    For each --coverage and --risk: how many test images, foreign images and noise images are accepted, and how many of
    the accepted test images are wrong. With --two, a coverage of 0.95 accepts 95 % of images like the training images
    in all: both thresholds together, each rejecting equally many.

    Example: dsui threshold runs/mine --coverage 0.95 --two --save
    """
    check_format(table_format, out, as_json)
    criteria = _parse_criteria(coverage, risk, save)
    foreign_names = parse_foreign(foreign)
    choice = parse_choice(score, foreign_score, two, detector)

    allow_function(own_function)
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.deploy.scorer import prepare
    from dsui.deploy.threshold_effects import OWN, effect
    from dsui.evaluation.evaluate import open_evaluation
    from dsui.limits import Criterion
    from dsui.report.threshold_table import threshold_csv, threshold_table
    from dsui.runs.calibration import stored_calibration
    from dsui.runs.model import run_facts

    facts = run_facts(run)
    weights, calibration, torch_device = facts.fingerprint(), stored_calibration(facts), select_device(device)
    console = stderr_console(quiet)
    with ProgressBars(console) as bars:
        chooser = prepare(
            facts,
            calibration,
            choice,
            torch_device,
            root=root,
            skip_bad=skip_bad,
            keep_outputs=cache,
            progress=bars.update,
            warn=bars.note,
        )
        if save:
            bars.note(_save(run, chooser, criteria[0], weights))
        saved = _read_saved(run, bars.note)
        with open_evaluation(
            facts,
            torch_device,
            root=root,
            skip_bad=skip_bad,
            keep_outputs=cache,
            progress=bars.update,
            warn=bars.note,
        ) as evaluation:
            sources = evaluation.sources
            needed = {OWN: sources.own()}
            for name in sources.foreign_names() if foreign_names is None else foreign_names:
                needed[name] = sources.foreign(name)
            needed["noise"] = sources.noise()
            sets = {name: chooser.scorer.of_set(evaluation.outputs(source)) for name, source in needed.items()}
            for sentence in sources.left_out_notes():
                bars.note(sentence)
    effects = [effect(criterion, chooser, sets) for criterion in (*criteria, Criterion())]
    records, scores = [each.record(saved) for each in effects], list(choice.finds())
    if as_json:
        print_json(records)
    if out is None and as_json:
        return
    kind = file_format(table_format, out)
    if kind is Format.json:
        write_text(json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False), out)
    elif kind is Format.csv:
        write_text(threshold_csv(effects, scores), out)
    else:
        images = len(chooser.calibration.errors)
        title = f"{facts.name}: what {'two thresholds accept' if len(scores) > 1 else 'thresholds accept'}"
        write_table(threshold_table(title, effects, scores, images, saved), table_format, out)


def _save(run: Path, chooser: Chooser, asked: Criterion, weights: str) -> str:
    """Keep a threshold in the run; a sentence that says so."""
    from dsui.runs.saved_thresholds import save_thresholds

    chosen = chooser.choose(asked)
    file = save_thresholds(run, chosen, weights, chooser.scorer.tensors())
    return f"Saved in {file}: {chosen.description}, by {asked.name}; `dsui predict` accepts by it from now on."


def _read_saved(run: Path, note: Callable[[str], None]) -> Thresholds | None:
    """What the run keeps; thresholds that cannot be used are no obstacle to choosing others."""
    from dsui.runs.saved_thresholds import saved_thresholds

    try:
        return saved_thresholds(run)
    except DsuiError as error:
        note(str(error))
        return None


def _parse_criteria(coverage: str | None, risk: str | None, save: bool) -> list[Criterion]:
    from dsui.limits import Criterion

    if save and coverage is None and risk is None:
        raise UsageError("--save keeps one threshold; name it with --coverage 0.95 or --risk 0.02.")
    usual = (None, None) if save else (COVERAGES, RISKS)
    coverages = _parse_shares("--coverage", usual[0] if coverage is None else coverage)
    risks = _parse_shares("--risk", usual[1] if risk is None else risk)
    criteria = [*(Criterion(share) for share in coverages), *(Criterion(risk=share) for share in risks)]
    if save and len(criteria) != 1:
        raise UsageError(f"--save keeps one threshold and {len(criteria)} are named; leave one --coverage or --risk.")
    return criteria


def _parse_shares(option: str, text: str | None) -> list[float]:
    """The numbers in "0.9,0.95"; none for an empty text."""
    return [_parse_share(option, number) for number in split_names(text or "") if number]


def _parse_share(option: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option}: {excerpt(text)} is not a share between 0 and 1; write shares as 0.9,0.95.")
    return share
