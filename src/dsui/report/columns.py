"""What a column of a comparison shows, and how a reader is told: names, units and directions of metrics and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsui.report.tables import Column
from dsui.score_table import LABELS


class Figure(NamedTuple):
    """What a column shows. The unknown classes of an open-set test differ from run to run: `foreign` is None."""

    data: str
    backbone: str | None
    task: str
    foreign: str | float | None
    score: str | None
    metric: str


class Unit(NamedTuple):
    title: str
    higher_is_better: bool | None
    unit: str = "%"
    scale: float = 100
    decimals: int = 2


METRICS = {
    "accuracy": Unit("accuracy", True),
    "auroc": Unit("AUROC", True),
    "aupr": Unit("AUPR", True),
    "aupr_in": Unit("AUPR-in", True),
    "aupr_trapezoid": Unit("AUPR trapezoid", True),
    "fpr95": Unit("FPR95", False),
    "false_alarms95": Unit("false alarms 95", False),
    "aurc": Unit("AURC", False, "1/1000", 1000),
    "e_aurc": Unit("E-AURC", False, "1/1000", 1000),
    "augrc": Unit("AUGRC", False, "1/1000", 1000),
    "ece": Unit("ECE", False),
    "adaptive_ece": Unit("adaptive ECE", False),
    "nll": Unit("NLL", False, "nats", 1, 4),
    "brier": Unit("Brier", False, "", 1, 4),
}
SCORES = LABELS
"""What readers see instead of the names of scores."""
UNKNOWN = "unknown classes"
"""What an open-set test has to find."""


def _parts(figure: Figure) -> tuple[str, ...]:
    """Data, backbone, task, foreign set and score as a reader knows them."""
    foreign = figure.foreign
    if foreign is None or foreign == figure.task:
        shown = ""
    else:
        shown = f"→ {foreign}" if isinstance(foreign, str) else f"ε {foreign:.3g}"
    score = SCORES.get(figure.score, figure.score) if figure.score else ""
    return (figure.data, figure.backbone or "", figure.task, shown, score)


def common(figures: Sequence[Figure]) -> tuple[str | None, ...]:
    """The parts that all columns share, which go to the title; None for a part that differs."""
    return tuple(values[0] if len(set(values)) == 1 else None for values in zip(*map(_parts, figures), strict=True))


def column(figure: Figure, shared: tuple[str | None, ...]) -> Column:
    """Without the parts that are `shared`."""
    unit = METRICS.get(figure.metric, Unit(figure.metric, None, "", 1, 4))
    own = (part for part, of_all in zip(_parts(figure), shared, strict=True) if of_all is None)
    header = (*("" if part == unit.title else part for part in own), unit.title)
    return Column(header, unit.higher_is_better, unit.unit, unit.scale, unit.decimals)
