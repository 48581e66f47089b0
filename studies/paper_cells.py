"""The cells of the paper's tables and figures, and how DS-UI stands in each of them.

A cell is one measure at one place: a data set and backbone, a pair of sets, or an attack. DS-UI is best in a cell if no
rival with rows there has a larger mean, by the digits that a table shows. Its difference is to the rival with the
largest mean, with Welch's 95 % interval. A cell has been run once DS-UI and a rival have rows; it is whole once every
rival has them that the paper shows there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from dsui.evaluation.paper_tables import PaperRow, paper_rows
from dsui.evaluation.results import ResultRow
from dsui.evaluation.statistics import DIFFERENT, Interval, Summary, difference_interval, mark, t_test
from dsui.report.columns import Figure, block_figures, figure_of
from dsui.report.comparison_lines import own_summaries, with_prediction_stream
from dsui.report.tables import Column, digits
from studies.paper_lines import NAMES, OURS, RIVALS

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN", "tiny-imagenet": "Tiny ImageNet"}
BACKBONES = {"vgg16": "VGG16", "resnet18": "ResNet18"}
RESNET = "resnet18"
"""The backbone of Tables 3 and 4, which the paper does not name; SDE-Net has no other."""
METRICS, SCORES = ("auroc", "aupr"), ("max_probability", "entropy")
MEASURES = [(metric, score) for metric in METRICS for score in SCORES]
"""The four panels of a figure."""
SHOWN = Column(("",), True, "%", 100, 2)
EPSILONS = tuple(place / 10 for place in range(1, 11))
LEFT_OUT = (("cifar10", "cifar100"), ("cifar100", "cifar10"))
"""The two of the twelve pairs that are not among our ten; the paper does not list its ten."""

Figures = Mapping[str, Mapping[Figure, Summary]]
"""Mean and deviation by line and cell."""


def _measured(task: str, places: Iterable[tuple[str, str, str | float | None]]) -> tuple[Figure, ...]:
    return tuple(figure for place in places for figure in block_figures(task, [place], METRICS, SCORES))


_EVERYWHERE = [(data, backbone, None) for data in DATA for backbone in BACKBONES]
_PAIRS = [(data, RESNET, other) for data in DATA for other in DATA if data != other]
ABLATION_CELLS = (
    Figure("cifar10", "vgg16", "accuracy", None, "prediction", "accuracy"),
    *_measured("misclassification", [("cifar10", "vgg16", None)]),
)
ACCURACY_CELLS = tuple(block_figures("accuracy", _EVERYWHERE, ("accuracy",), ("prediction",)))
ERROR_CELLS = _measured("misclassification", _EVERYWHERE)
OPEN_SET_CELLS = _measured("open-set", [(data, RESNET, None) for data in ("cifar10", "tiny-imagenet")])
PAIR_CELLS = _measured("ood", [pair for pair in _PAIRS if pair[::2] not in LEFT_OUT])
OTHER_PAIR_CELLS = _measured("ood", [pair for pair in _PAIRS if pair[::2] in LEFT_OUT])
NOISE_CELLS = _measured("noise", [("cifar100", RESNET, "noise")])
ATTACK_CELLS = _measured("fgsm", [("cifar10", RESNET, epsilon) for epsilon in EPSILONS])
TINY_ATTACK_CELLS = _measured("fgsm", [("cifar10", RESNET, pixels / 255) for pixels in (2, 4, 8)])
"""Smaller attacks than those of the paper."""

CELLS = {
    "table2": ACCURACY_CELLS,
    "figure3": ERROR_CELLS,
    "figure5": PAIR_CELLS,
    "table3": OPEN_SET_CELLS,
    "table4": NOISE_CELLS,
    "figure6": ATTACK_CELLS,
}
"""The cells in which DS-UI is compared with rivals, by table and figure, in the paper's order."""


class Published(NamedTuple):
    """A figure as printed; `mark` is empty for DS-UI."""

    summary: Summary
    mark: str


class Standing(NamedTuple):
    """DS-UI in one cell: its figure, the best rival and that rival's figure; `missing` rivals have no rows yet."""

    figure: Figure
    ours: Summary | None
    rival: str
    theirs: Summary | None
    missing: tuple[str, ...]

    @property
    def run(self) -> bool:
        return self.ours is not None and self.theirs is not None

    @property
    def whole(self) -> bool:
        return self.run and not self.missing

    @property
    def best(self) -> bool:
        return self.ours is not None and self.theirs is not None and shown(self.ours) >= shown(self.theirs)

    @property
    def difference(self) -> float:
        """DS-UI minus the best rival, where both have rows."""
        assert self.ours is not None
        assert self.theirs is not None
        return self.ours.mean - self.theirs.mean

    @property
    def interval(self) -> Interval | None:
        assert self.ours is not None
        assert self.theirs is not None
        return difference_interval(self.ours, self.theirs)


def shown(summary: Summary) -> float:
    """The mean by the digits that a table shows."""
    return float(digits(summary.mean, SHOWN))


def summarize_lines(rows: Iterable[ResultRow], cells: Sequence[Figure]) -> Figures:
    return {key.method: figures for key, figures in own_summaries(rows, set(cells)).items() if figures}


def place_name(figure: Figure) -> str:
    """Where a cell is: "CIFAR-10, VGG16", "CIFAR-10 → SVHN", "ε 0.1"."""
    data = DATA[figure.data]
    match figure.task:
        case "ood" | "noise":
            return f"{data} → {DATA.get(str(figure.foreign), figure.foreign)}"
        case "fgsm":
            return f"ε {figure.foreign:.3g}"
        case "open-set":
            return f"{data}, {'6 / 4' if figure.data == 'cifar10' else '20 / 180'}"
        case _:
            return f"{data}, {BACKBONES[figure.backbone or RESNET]}"


@cache
def printed(table: str) -> dict[str, dict[Figure, Published]]:
    """The paper's own figures by line, as it prints them; of Table 1 by the settings."""
    found: dict[str, dict[Figure, Published]] = {}
    for row in map(with_prediction_stream, paper_rows(table)):
        line = NAMES[row.method] if row.settings is None else ablation_line(row)
        for metric, mean in row.metrics.items():
            figure = figure_of(row, metric)
            figure = figure._replace(backbone=figure.backbone or RESNET)
            own_mark = row.mark.get(metric, "")
            found.setdefault(line, {})[figure] = Published(
                Summary(mean, row.deviation[metric], row.runs), "" if row.method == "dsui" else own_mark
            )
    return found


def ablation_line(row: PaperRow) -> str:
    """The label that the grid of Table 1 gives to the settings of a printed row."""
    assert row.settings is not None
    push = "push" if row.settings["push"] else "no push"
    return f"dsui (K {row.settings['components']}, {push}, {row.settings['regularizer'] or 'no reg'})"


def in_paper(line: str, figure: Figure) -> bool:
    """Whether the paper shows this method in this cell. Its figures have the methods of Table 2 on the same sets."""
    table = {"open-set": "table3", "noise": "table4"}.get(figure.task, "table2")
    if table == "table2":
        figure = Figure(figure.data, figure.backbone, "accuracy", None, "prediction", "accuracy")
    return figure in printed(table).get(line, {})


def standing(
    figures: Figures, figure: Figure, stream: str = OURS, rivals: Collection[str] = RIVALS.values()
) -> Standing:
    """How DS-UI stands in a cell among these methods, by this one of its lines."""
    theirs = {line: figures[line][figure] for line in rivals if figure in figures.get(line, {})}
    best = max(theirs, key=lambda line: theirs[line].mean, default="")
    missing = tuple(line for line in rivals if line not in theirs and in_paper(line, figure))
    return Standing(figure, figures.get(stream, {}).get(figure), best, theirs.get(best), missing)


def ahead_significantly(figures: Figures, figure: Figure, stream: str, line: str) -> bool | None:
    """Whether DS-UI's mean is larger and the paper's test finds a difference; None where it cannot be tested."""
    ours, theirs = figures.get(stream, {}).get(figure), figures.get(line, {}).get(figure)
    if ours is None or theirs is None:
        return None
    if shown(ours) < shown(theirs):
        return False
    p = t_test(ours, theirs)
    return None if math.isnan(p) else mark(p) == DIFFERENT
