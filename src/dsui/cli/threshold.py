"""`dsui threshold`: what a threshold by coverage or by risk accepts of test images, foreign images and noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    parse_foreign,
    parse_path,
    select_device,
    split_names,
)
from dsui.cli.errors import UsageError
from dsui.cli.output import Format, TableFile, TableFormat, check_format, write_table
from dsui.excerpt import excerpt

COVERAGES, RISKS = "0.8,0.9,0.95,0.99", "0.01,0.02,0.05"


def threshold(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=parse_path)],
    coverage: Annotated[
        str, typer.Option(metavar="SHARES", help="Shares to accept of images like the training images.")
    ] = COVERAGES,
    risk: Annotated[
        str, typer.Option(metavar="SHARES", help="Shares of errors to allow among the accepted images.")
    ] = RISKS,
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
    """Show what different thresholds accept and reject.

    For each --coverage and --risk: how many test images, foreign images and noise images are accepted, and how many of
    the accepted test images are wrong. It helps to choose a threshold for `dsui predict`.

    Example: dsui threshold runs/mine --coverage 0.9,0.95
    """
    check_format(table_format, out, as_json)
    coverages, risks = _parse_shares("--coverage", coverage), _parse_shares("--risk", risk)
    foreign_names = parse_foreign(foreign)

    allow_function(own_function)
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.deploy.threshold_effects import Criterion, largest_accepted, set_uncertainties
    from dsui.evaluation.evaluate import open_evaluation
    from dsui.report.threshold_table import threshold_table
    from dsui.runs.calibration import stored_calibration
    from dsui.runs.model import run_facts

    facts = run_facts(run)
    calibration = stored_calibration(facts)
    calibration.check()
    with (
        ProgressBars(stderr_console(quiet)) as bars,
        open_evaluation(
            facts,
            select_device(device),
            root=root,
            skip_bad=skip_bad,
            keep_outputs=cache,
            progress=bars.update,
            warn=bars.note,
        ) as evaluation,
    ):
        sources = evaluation.sources
        needed = {"test": sources.own()}
        for name in sources.foreign_names() if foreign_names is None else foreign_names:
            needed[name] = sources.foreign(name)
        needed["noise"] = sources.noise()
        image_sets = {
            name: set_uncertainties(evaluation.outputs(source), calibration.reference, in_domain=name == "test")
            for name, source in needed.items()
        }
        for sentence in sources.left_out_notes():
            bars.note(sentence)
    criteria = [*(Criterion(share) for share in coverages), *(Criterion(risk=share) for share in risks), Criterion()]
    limits = [largest_accepted(calibration, criterion) for criterion in criteria]
    title = f"{facts.name}: what thresholds accept"
    table = threshold_table(title, limits, image_sets, len(calibration.uncertainties))
    if as_json:
        write_table(table, Format.json, None)
    if out is not None or not as_json:
        write_table(table, table_format, out)


def _parse_shares(option: str, text: str) -> list[float]:
    """The numbers in "0.9,0.95"; none for an empty text."""
    return [_parse_share(option, number) for number in split_names(text) if number]


def _parse_share(option: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option}: {excerpt(text)} is not a share between 0 and 1; write shares as 0.9,0.95.")
    return share
