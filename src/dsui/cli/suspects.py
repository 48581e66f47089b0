"""`dsui data suspects`: training images whose label may be wrong."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import (
    Device,
    KeepOutputs,
    OwnFunction,
    Root,
    SkipBad,
    Weights,
    allow_function,
    check_page,
    select_device,
)
from dsui.cli.errors import UsageError
from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line

if TYPE_CHECKING:
    from dsui.runs.config import RunConfig

SHOWN_IN_TERMINAL = 10
FEWEST_FOLDS, MOST_FOLDS = 2, 100


def suspects(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=parse_path)],
    out: Annotated[Path, typer.Option(metavar="FILE", parser=parse_path, help="Where to write the page.")] = Path(
        "suspects.html"
    ),
    top: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="How many images to show.")] = 48,
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_FOLDS,
            metavar="NUMBER",
            help="Train so many models again, each without a part of the images: finds more, and takes as long as that "
            "many runs. 0: judge by the run's features, in seconds.",
        ),
    ] = 0,
    weights: Weights = None,
    root: Root = None,
    device: Device = "auto",
    own_function: OwnFunction = None,
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the training images whose label a model doubts most.

    Some of these labels are wrong. Every image is judged by a model that did not see it. The page holds the images;
    nothing is changed.

    Example: dsui data suspects runs/mine --folds 5
    """
    if 0 < folds < FEWEST_FOLDS:
        raise UsageError(
            f"--folds {folds}: a model must be trained without a part; choose 0, or {FEWEST_FOLDS} or more."
        )
    if weights is not None and folds == 0:
        raise UsageError(f"--weights {weights}: models are trained again with --folds alone; leave it out.")
    allow_function(own_function)
    check_page(out)
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.evaluation.suspects import find_suspects
    from dsui.report.page import page, write_page
    from dsui.report.suspects_page import evidence, most_doubted, sections
    from dsui.runs.model import run_facts
    from dsui.runs.start import started

    facts = run_facts(run)
    start = started(facts.config.backbone, weights, facts.config.size) if folds else nullcontext()
    with start, ProgressBars(stderr_console(quiet)) as bars:
        found = find_suspects(
            facts,
            select_device(device),
            folds=folds,
            root=root,
            skip_bad=skip_bad,
            keep=cache,
            progress=bars.update,
            warn=bars.note,
        )
    shown = most_doubted(found, top)
    write_page(out, page(f"Doubted labels of {facts.config.data}", _lead(facts.config, run), sections(found, shown)))
    if as_json:
        print_json(
            {
                "run": run,
                "page": out,
                "images": len(found.images.labels),
                "contradicted": found.contradicted,
                "evidence": "folds" if folds else "features",
                "network_saw_labels": found.seen and not folds,
                "suspects": [each._asdict() for each in shown],
            }
        )
        return
    if quiet:
        return
    for each in shown[:SHOWN_IN_TERMINAL]:
        name = each.file or f"image {each.image}"
        print_line(f"{name}: labelled {each.label}, looks like {each.suggested} ({each.suggested_probability:.3f})")
    print_line(evidence(found))
    total = len(found.images.labels)
    print_line(
        f"{found.contradicted:,} of {total:,} labels are contradicted; {out} shows the {len(shown)} most doubted."
    )


def _lead(config: RunConfig, run: Path) -> str:
    return f"Training images of {run.name} ({config.method}, {config.backbone}). Made with dsui data suspects."
