"""The options by which `dsui threshold` and `dsui predict` choose the scores that thresholds are set on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import check_name
from dsui.cli.names import completion
from dsui.score_table import NAMES, detector_scores

if TYPE_CHECKING:
    from dsui.deploy.score_choice import ScoreChoice

Score = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The score to set the threshold on; --two: the one that finds errors.  [default: uncertainty, or that of "
        "--detector]",
        autocompletion=completion(names.scores),
    ),
]
Two = Annotated[
    bool,
    typer.Option(
        "--two",
        help="Set two thresholds, one that finds errors and one that finds foreign images. An image is accepted if "
        "both accept it, and --coverage is the share accepted in all.",
    ),
]
ForeignScore = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="As --two, with this score to find foreign images.  [default: foreignness, or that of --detector]",
        autocompletion=completion(names.scores),
    ),
]
DetectorName = Annotated[
    str | None,
    typer.Option(
        "--detector",
        metavar="NAME",
        help="Fit this post-hoc detector to the training images, and use its score: "
        f"{', '.join(name for name in names.detectors() if name != 'odin')}.",
        autocompletion=completion(names.detectors),
    ),
]


def parse_choice(score: str | None, foreign_score: str | None, two: bool, detector: str | None) -> ScoreChoice:
    """What the options say; a mistyped name is found before any work is done."""
    if detector is not None:
        check_name("detector", detector, names.detectors())
    from dsui.deploy.score_choice import ScoreChoice
    from dsui.scores import is_misspelled

    of_detectors = [each for name in names.detectors() for each in detector_scores(name)]
    for name in (score, foreign_score):
        if name is not None and is_misspelled(name, of_detectors):
            check_name("score", name, (*NAMES, *of_detectors))
    choice = ScoreChoice(score, foreign_score, two, detector)
    choice.check()
    return choice
