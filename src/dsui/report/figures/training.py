"""Loss and accuracy over the epochs of a run, from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from dsui.report.figures.canvas import BLUE, Drawing, add_legend_below, new_panel, series_styles, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Log = Sequence[Mapping[str, Any]]
COUNTERS = {"epoch", "step"}
BEHIND_TERMS = {"accuracy", "seconds"}
"""A stage that trains no classifier has no accuracy."""
LOSS_READING = "The loss should fall and then stay flat; where it still falls at the end, more epochs may help."
ACCURACY_READING = (
    "The line should rise and then stay flat; on images that the model was not trained on, the accuracy is lower."
)


@styled
def losses(name: str, log: Log) -> Drawing:
    """The loss and its terms, which stand before the accuracy and the seconds in each row; on a log axis where all are
    positive."""
    figure, axes = new_panel()
    terms = dict.fromkeys(key for row in log for key in takewhile(lambda key: key not in BEHIND_TERMS, row))
    series = {key: _points(log, key) for key in terms if key not in COUNTERS}
    if series.get("cross_entropy") == series["loss"]:
        del series["cross_entropy"]
    ranges = []
    for (key, points), style in zip(series.items(), series_styles(), strict=False):
        label = key.replace("_", " ")
        _line(axes, points, color=style.color, linestyle=style.dashes, label=label)
        ranges.append(f"{label} from {points[0][1]:.4g} to {points[-1][1]:.4g}")
    if all(value > 0 for points in series.values() for _, value in points):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.set(xlabel="epoch", ylabel="mean over the epoch")
    add_legend_below(figure, axes)
    terms_too = "" if len(series) == 1 else " and its terms before weighting"
    caption = f"Loss on training images{terms_too}; lower is better."
    return Drawing(name, figure, caption, f"Over the epochs: {'; '.join(ranges)}.", LOSS_READING)


@styled
def accuracies(name: str, log: Log) -> Drawing:
    figure, axes = new_panel()
    points = [(epoch, 100 * share) for epoch, share in _points(log, "accuracy")]
    _line(axes, points, color=BLUE)
    axes.set(xlabel="epoch", ylabel="accuracy (%)", ylim=(min(0, *(y for _, y in points)), 103))
    caption = "Accuracy on training images, as augmented for training; higher is better."
    return Drawing(name, figure, caption, f"From {points[0][1]:.1f} % to {points[-1][1]:.1f} %.", ACCURACY_READING)


def _points(log: Log, key: str) -> list[tuple[int, float]]:
    """Epochs are counted from 1."""
    return [(row["epoch"] + 1, row[key]) for row in log if key in row]


def _line(axes: Axes, points: Sequence[tuple[int, float]], **style: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.plot(*zip(*points, strict=True), marker="o" if len(points) < 10 else "", **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
