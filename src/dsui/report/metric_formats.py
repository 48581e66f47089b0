"""How each metric is shown: its title, its direction, its unit and its decimals.

It imports no PyTorch, because the command line completes the names of metrics from here.
"""

from __future__ import annotations

from typing import NamedTuple

from dsui.report.tables import Column


class MetricFormat(NamedTuple):
    """How a metric is printed: `scale` times its value, with `decimals`, in `unit`."""

    title: str
    higher_is_better: bool | None
    unit: str = "%"
    scale: float = 100
    decimals: int = 2

    def column(self, *above: str) -> Column:
        """A column of this metric; `above` are the header lines over its title."""
        return Column((*above, self.title), self.higher_is_better, self.unit, self.scale, self.decimals)


METRICS = {
    "accuracy": MetricFormat("accuracy", True),
    "auroc": MetricFormat("AUROC", True),
    "aupr": MetricFormat("AUPR", True),
    "aupr_in": MetricFormat("AUPR-in", True),
    "aupr_trapezoid": MetricFormat("AUPR trapezoid", True),
    "fpr95": MetricFormat("FPR95", False),
    "false_alarms95": MetricFormat("false alarms 95", False),
    "aurc": MetricFormat("AURC", False, "1/1000", 1000),
    "e_aurc": MetricFormat("E-AURC", False, "1/1000", 1000),
    "augrc": MetricFormat("AUGRC", False, "1/1000", 1000),
    "ece": MetricFormat("ECE", False),
    "adaptive_ece": MetricFormat("adaptive ECE", False),
    "nll": MetricFormat("NLL", False, "nats", 1, 4),
    "brier": MetricFormat("Brier", False, "", 1, 4),
    "scaled_nll": MetricFormat("scaled NLL", False, "nats", 1, 4),
    "scaled_ece": MetricFormat("scaled ECE", False),
    "scaled_adaptive_ece": MetricFormat("scaled adaptive ECE", False),
    "scaled_brier": MetricFormat("scaled Brier", False, "", 1, 4),
}


def format_of(metric: str) -> MetricFormat:
    """How a metric is shown; one that nothing here knows has no direction."""
    return METRICS.get(metric, MetricFormat(metric, None, "", 1, 4))
