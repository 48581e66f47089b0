"""`dsui threshold`: what accepting by coverage or by risk would do to test images, foreign images and noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsui.cli.choice import WrongUsage, foreign_sets, listed
from dsui.cli.formats import Form, Format, TableFile, check_form, formatted
from dsui.cli.options import Device, Foreign, Json, KeepOutputs, Quiet, Root, SkipBad, given_path

COVERAGES, RISKS = "0.8,0.9,0.95,0.99", "0.01,0.02,0.05"


def threshold(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=given_path)],
    coverage: Annotated[
        str, typer.Option(metavar="SHARES", help="Accepted shares of images like the training images.")
    ] = COVERAGES,
    risk: Annotated[str, typer.Option(metavar="SHARES", help="Shares of wrong ones among the accepted.")] = RISKS,
    foreign: Foreign = "",
    root: Root = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    out: TableFile = None,
    form: Form = Format.terminal,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What would a threshold accept of test images, foreign images and noise?

    A line for each threshold that `dsui predict` could be given.

    Example: dsui threshold runs/mine --coverage 0.9,0.95
    """
    check_form(form, out, as_json)
    coverages, risks = _shares("--coverage", coverage), _shares("--risk", risk)
    others = foreign_sets(foreign)

    from dsui.cli.bars import Bars, notes
    from dsui.cli.device import command_device
    from dsui.deploy.threshold_effects import Criterion, largest_accepted, set_uncertainties
    from dsui.evaluation.evaluate import open_evaluation
    from dsui.report.threshold_table import threshold_table
    from dsui.runs.calibration import stored_calibration
    from dsui.runs.model import run_facts

    facts = run_facts(run)
    calibration = stored_calibration(facts)
    calibration.check()
    with (
        Bars(notes(quiet)) as bar,
        open_evaluation(
            facts,
            command_device(device),
            root=root,
            skip_bad=skip_bad,
            keep_outputs=cache,
            progress=bar.show,
            warn=bar.say,
        ) as evaluation,
    ):
        sources = evaluation.sources
        needed = {"test": sources.own()}
        needed |= {name: sources.foreign(name) for name in (sources.foreign_names() if others is None else others)}
        needed["noise"] = sources.noise()
        image_sets = {
            name: set_uncertainties(evaluation.outputs(source), calibration.reference, in_domain=name == "test")
            for name, source in needed.items()
        }
        for sentence in sources.left_out_notes():
            bar.say(sentence)
    criteria = [*(Criterion(share) for share in coverages), *(Criterion(risk=share) for share in risks), Criterion()]
    limits = [largest_accepted(calibration, criterion) for criterion in criteria]
    title = f"{facts.name}: what thresholds accept"
    table = threshold_table(title, limits, image_sets, len(calibration.uncertainties))
    if as_json:
        formatted(table, Format.json, None)
    if out is not None or not as_json:
        formatted(table, form, out)


def _shares(option: str, text: str) -> list[float]:
    """Of an empty text none."""
    return [_share(option, word) for word in listed(text) if word]


def _share(option: str, word: str) -> float:
    try:
        share = float(word)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise WrongUsage(f"{option}: {word!r} is no share between 0 and 1; write them as 0.9,0.95.")
    return share
