"""The part of a page about thresholds: what they let through, and the one that was chosen."""

from __future__ import annotations

import shlex
from pathlib import Path

from dsui.deploy.threshold_effects import OWN
from dsui.deploy.tradeoff import USUAL_COVERAGE, Tradeoff
from dsui.report.figures.tradeoff import tradeoff_curves
from dsui.report.section import Section


def tradeoff_section(key: str, run: Path, found: Tradeoff) -> Section:
    """`run` is its folder, for the command that chooses a threshold."""
    scores = " and ".join(found.scores)
    section = Section(f"{key}-thresholds", "Thresholds", [_sentence(run, found)])
    own = found.effects.get(OWN)
    at = None if own is None or own.accepted is None else own.accepted
    wrong = {} if own is None or own.wrong is None else {"errors": own.wrong}
    passing = {name: found.effects[name].accepted for name in found.passing if name in found.effects}
    dot = "" if at is None else " The dot is the threshold." if len(found.scores) == 1 else " The dot: both thresholds."
    for name, lines, quantity, marks, what in (
        ("errors", {"errors": found.errors}, "errors among the accepted", wrong, "Errors"),
        ("foreign", found.passing, "foreign images accepted", passing, "Foreign images let through"),
    ):
        known = {label: value for label, value in marks.items() if value is not None}
        section.drawings.append(
            tradeoff_curves(
                f"{key}-thresholds-{name}",
                found.coverage,
                lines,
                quantity,
                None if at is None else (at, known),
                f"{what} over coverage, by {scores}.{dot}",
            )
        )
    return section


def _sentence(run: Path, found: Tradeoff) -> str:
    folder, chosen = shlex.quote(str(run)), found.thresholds
    if chosen is None:
        return (
            "A threshold needs images that the model was not trained on, and this run has too few: train with "
            "--calibration 0.1. The lines show what thresholds would do to the test images."
        )
    own = found.effects[OWN]
    shares = [f"{own.accepted or 0:.1%} of the test images"]
    shares += [f"{each.accepted or 0:.1%} of {name}" for name, each in found.effects.items() if name != OWN]
    errors = "" if own.wrong is None else f" Of the accepted test images {own.wrong:.1%} are predicted wrongly."
    kept = (
        f"The run keeps a threshold, by which dsui predict accepts: {chosen.description}, by {chosen.asked.name}."
        if found.saved
        else f"No threshold is saved in this run. One of coverage {USUAL_COVERAGE:g} would be {chosen.description}; "
        f"dsui threshold {folder} --coverage {USUAL_COVERAGE:g} --save keeps it."
    )
    return f"{kept} It accepts {', '.join(shares[:-1])}{' and ' * (len(shares) > 1)}{shares[-1]}.{errors}"
