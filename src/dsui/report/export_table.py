"""The table of what fewer bits change in an exported file."""

from __future__ import annotations

from dsui.export.effects import Effects, Variant
from dsui.report.tables import Column, Entry, Line, Table

COLUMNS = (
    Column(("size",), False, "MB", 1e-6, 2),
    Column(("speed",), True, "images/s", decimals=0),
    Column(("accuracy",), True, "%", 100, 2),
    Column(("AURC",), False, "%", 100, 3),
    Column(("accepted",), None, "%", 100, 1),
)


def effects_table(effects: Effects) -> Table:
    """A line for float32, one for fewer bits."""
    flipped = effects.decisions_flipped
    decisions = "there is no threshold" if flipped is None else f"{flipped:.2%} of the decisions flip"
    note = (
        f"Of {effects.source}: {effects.labels_changed:.2%} of the labels change, {decisions}, and a "
        f"probability changes by up to {effects.probability:.3f}. Speed on this processor, in turns in one process: "
        f"{effects.speed:.2f} times that of fp32. Thresholds are those of the run, whose network is fp32."
    )
    lines = tuple(_line(each) for each in (effects.whole, effects.reduced))
    return Table("What fewer bits change", COLUMNS, lines, note, "network")


def _line(variant: Variant) -> Line:
    values = (variant.bytes, variant.images_per_second, variant.accuracy, variant.aurc, variant.accepted)
    return Line(variant.precision, tuple(Entry(None if value is None else float(value)) for value in values))
