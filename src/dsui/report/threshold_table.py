"""Thresholds as lines of a table: how many images of each kind they accept."""

from __future__ import annotations

from collections.abc import Sequence

from dsui import spreadsheet
from dsui.deploy.threshold_effects import OWN, Effect
from dsui.limits import Criterion
from dsui.report.tables import Column, Entry, Line, Table
from dsui.runs.acceptance import Thresholds

CORNER = "accepting by"
MARK = "*"
"""Behind the thresholds that the run keeps."""


def threshold_table(
    title: str, effects: Sequence[Effect], scores: Sequence[str], calibrated: int, saved: Thresholds | None = None
) -> Table:
    """`scores`: those that have thresholds. `calibrated`: how many images these were chosen by. `saved`: those that the
    run keeps."""
    columns = [Column((score, "up to"), decimals=3) for score in scores]
    for each in effects[0].sets:
        columns.append(Column((each.name, "accepted"), unit="%", scale=100, decimals=1))
        if each.name == OWN:
            columns.append(Column((each.name, "wrong"), unit="%", scale=100, decimals=2))
    lines = tuple(Line(_label(each, saved), tuple(_cells(each, scores))) for each in effects)
    notes = [_images(effects[0], calibrated), *_two(scores), *_saved(effects, saved), *_obstacles(effects)]
    return Table(title, tuple(columns), lines, " ".join(notes), corner=CORNER)


def threshold_csv(effects: Sequence[Effect], scores: Sequence[str]) -> str:
    """A line for each criterion, shares as fractions. Where a criterion has no thresholds, the cells are empty."""
    rows = []
    for each in effects:
        row: dict[str, object] = {CORNER: each.criterion.name}
        row |= {f"{score} up to": None for score in scores}
        for limit in each.thresholds.limits if each.thresholds else ():
            row[f"{limit.score} up to"] = limit.value
        for images in each.sets:
            row[f"{images.name} accepted"] = images.accepted
            if images.name == OWN:
                row[f"{images.name} wrong"] = images.wrong
        rows.append(row)
    return spreadsheet.to_csv([rows[0], *(row.values() for row in rows)])


def _label(effect: Effect, saved: Thresholds | None) -> str:
    is_saved = effect.thresholds is not None and effect.thresholds == saved
    return effect.criterion.name + f" {MARK}" * is_saved


def _cells(effect: Effect, scores: Sequence[str]) -> list[Entry]:
    if effect.thresholds is None:
        cells = [Entry(text="any" if effect.criterion == Criterion() else "-") for _ in scores]
    else:
        cells = [Entry(limit.value) for limit in effect.thresholds.limits]
    for images in effect.sets:
        cells.append(Entry(images.accepted))
        if images.name == OWN:
            cells.append(Entry(images.wrong))
    return cells


def _images(effect: Effect, calibrated: int) -> str:
    counts = ", ".join(f"{images.images:,} of {images.name}" for images in effect.sets)
    return f"Wrong: among the accepted. Images: {counts}; the thresholds were chosen by {calibrated:,} others."


def _two(scores: Sequence[str]) -> list[str]:
    return ["An image is accepted if both scores accept it; a coverage is the share accepted in all."] * (
        len(scores) > 1
    )


def _saved(effects: Sequence[Effect], saved: Thresholds | None) -> list[str]:
    if saved is None:
        return []
    if any(each.thresholds == saved for each in effects):
        return [f"{MARK} saved in the run."]
    return [f"Saved in the run: {saved.description}, by {saved.asked.name}."]


def _obstacles(effects: Sequence[Effect]) -> list[str]:
    """Why the easiest of the unmet demands (smallest coverage, largest risk) cannot be met; the others are harder."""
    unmet = [(each.criterion, each.obstacle) for each in effects if each.obstacle is not None]
    coverages = [(criterion.coverage, why) for criterion, why in unmet if criterion.coverage is not None]
    risks = [(criterion.risk, why) for criterion, why in unmet if criterion.risk is not None]
    reasons = [*(min(coverages)[1:] if coverages else ()), *(max(risks)[1:] if risks else ())]
    return [f"{str(sentence)[:1].upper()}{str(sentence)[1:]}" for sentence in reasons]
