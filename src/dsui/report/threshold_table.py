"""Thresholds as lines of a table: how many images of each kind a threshold accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dsui.deploy.threshold_effects import Limit, SetUncertainties
from dsui.report.tables import Column, Entry, Line, Table


def threshold_table(
    title: str, limits: Sequence[Limit], kinds: Mapping[str, SetUncertainties], calibrated: int
) -> Table:
    """`kinds`: images by name. `calibrated`: how many other images the thresholds were chosen by."""
    columns = [Column(("uncertainty", "up to"), decimals=3)]
    for name, images in kinds.items():
        columns.append(Column((name, "accepted"), unit="%", scale=100, decimals=1))
        if images.errors is not None:
            columns.append(Column((name, "wrong"), unit="%", scale=100, decimals=2))
    counts = ", ".join(f"{len(images.uncertainties):,} of {name}" for name, images in kinds.items())
    note = f"Wrong: among the accepted. Images: {counts}; the thresholds were chosen by {calibrated:,} others."
    lines = tuple(Line(each.criterion.name, tuple(_cells(each.value, kinds))) for each in limits)
    return Table(title, tuple(columns), lines, " ".join([note, *_obstacles(limits)]), corner="accepting by")


def _obstacles(limits: Sequence[Limit]) -> list[str]:
    """Why the easiest of the unmet demands (smallest coverage, largest risk) cannot be met; the others are harder."""
    unmet = [each for each in limits if each.obstacle]
    coverages = [(each.criterion.coverage, each.obstacle) for each in unmet if each.criterion.coverage is not None]
    risks = [(each.criterion.risk, each.obstacle) for each in unmet if each.criterion.risk is not None]
    reasons = [*(min(coverages)[1:] if coverages else ()), *(max(risks)[1:] if risks else ())]
    return [f"{sentence[:1].upper()}{sentence[1:]}" for sentence in reasons]


def _cells(value: float | None, kinds: Mapping[str, SetUncertainties]) -> list[Entry]:
    cells = [Entry(value, text="any" if value == math.inf else "-")]
    for images in kinds.values():
        cells.append(Entry(None if value is None else images.accepted(value)))
        if images.errors is not None:
            cells.append(Entry(None if value is None else images.wrong(value)))
    return cells
