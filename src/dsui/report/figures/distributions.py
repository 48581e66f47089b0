"""Figure 4: distributions of Max.P. and entropy over the images of each class and over foreign images.

Each group is drawn as the Gaussian of its mean and deviation, over histograms of all in-domain and all foreign images.
Each curve is divided by its own maximum: the Gaussian of a class of which the model is sure can be a hundred times as
narrow, and so as high, as that of a set of which it is not sure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.report.figures.canvas import (
    BLUE,
    INK,
    Drawing,
    add_legend_below,
    new_panel,
    new_panels,
    series_styles,
    styled,
)
from dsui.report.figures.names import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND_CLASSES = 12
"""With more classes all of them share one colour and one line of the legend."""
BINS, POINTS, FEW_POINTS = 40, 120, 33
READING = "The narrower a curve, the more alike the images of that class are to the model."
FOREIGN_READING = (
    "The less the thick curve of foreign images overlaps those of the classes, the better the two can be told apart."
)
Values = NDArray[np.float64]


def probability_or_entropy(score: str, values: Tensor) -> Tensor:
    """max p or H, which the paper shows, of the scores ln(1 - max p) and ln H."""
    return 1 - values.exp() if score.endswith("max_probability") else values.exp()


class Gaussian(NamedTuple):
    mean: float
    deviation: float

    def curve(self, points: int = POINTS) -> tuple[Values, Values]:
        """x and exp(-(x - mean)^2 / 2 deviation^2), four deviations to each side; a spike where the deviation is 0."""
        if self.deviation == 0:
            return np.full(2, self.mean), np.array([0.0, 1.0])
        steps = np.linspace(-4, 4, points)
        return self.mean + self.deviation * steps, np.exp(-0.5 * steps**2)


def fit_gaussian(values: Tensor) -> Gaussian:
    """Mean and deviation (ddof 1) of [N] values; a single value deviates by 0."""
    values = values.double()
    return Gaussian(values.mean().item(), values.std().item() if len(values) > 1 else 0.0)


@styled
def distributions(
    name: str, quantity: str, largest: float, own: Mapping[str, Tensor], foreign: tuple[str, Tensor] | None = None
) -> Drawing:
    """`own`: the values of each class's images [N], between 0 and `largest`; `foreign`: a set's name and values."""
    figure, axes = new_panel()
    together = torch.cat(list(own.values()))
    groups = {group: fit_gaussian(values) for group, values in own.items()}
    means = [group.mean for group in groups.values()]
    description = (
        f"Of {len(together):,} in-domain images the classes' means lie between {min(means):.3g} and {max(means):.3g}"
    )
    axes.stairs(*_histogram(together, largest), fill=True, color=BLUE, alpha=0.25)
    if foreign is not None:
        axes.stairs(*_histogram(foreign[1], largest), color=INK, linewidth=0.8)
    others = {} if foreign is None else {foreign[0]: fit_gaussian(foreign[1])}
    _draw_gaussians(axes, groups, others)
    for other, gaussian in others.items():
        description += f"; {other} has mean {gaussian.mean:.3g} and deviation {gaussian.deviation:.3g}"
    axes.set(xlim=(0, largest), ylim=(0, 1.08), xlabel=quantity, ylabel="density / its maximum")
    add_legend_below(figure, axes)
    ours = "each class (histogram of all: filled)"
    who = f"{ours} and foreign images (histogram: outlined)" if foreign else ours
    caption = f"{quantity[0].upper()}{quantity[1:]}: Gaussians fitted to {who}."
    return Drawing(name, figure, caption, f"{description}.", FOREIGN_READING if foreign else READING)


class FittedPanel(NamedTuple):
    """A panel of `fitted_distributions`: the Gaussians of each class and of foreign sets, on an axis from 0 to
    `largest`."""

    quantity: str
    largest: float
    own: Mapping[str, Gaussian]
    foreign: Mapping[str, Gaussian]


@styled
def fitted_distributions(name: str, panels: Sequence[FittedPanel], caption: str) -> Drawing:
    """The Gaussians alone, as the paper draws them: the form of its figure for runs whose images are not at hand."""
    figure, grid = new_panels(-(-len(panels) // 2), 2)
    descriptions = []
    for axes, panel in zip(grid, panels, strict=False):
        _draw_gaussians(axes, panel.own, panel.foreign)
        axes.set(xlim=(0, panel.largest), ylim=(0, 1.08), xlabel=panel.quantity, ylabel="density / its maximum")
        groups = {**panel.own, **panel.foreign}
        listed = ", ".join(f"{group} {fitted.mean:.3g} ± {fitted.deviation:.3g}" for group, fitted in groups.items())
        descriptions.append(f"{panel.quantity[0].upper()}{panel.quantity[1:]}: {listed}.")
    for unused in grid[len(panels) :]:
        unused.remove()
    add_legend_below(figure, *grid[: len(panels)])
    return Drawing(name, figure, caption, " ".join(descriptions), FOREIGN_READING)


def _draw_gaussians(axes: Axes, groups: Mapping[str, Gaussian], foreign: Mapping[str, Gaussian]) -> None:
    if len(groups) > LEGEND_CLASSES:
        axes.plot(*_as_one(groups.values()), color=BLUE, linewidth=0.6, label=f"{len(groups)} classes")
    else:
        for (group, gaussian), style in zip(groups.items(), series_styles(), strict=False):
            axes.plot(*gaussian.curve(), color=style.color, linestyle=style.dashes, linewidth=1.2, label=shorten(group))
    for (group, gaussian), dashes in zip(foreign.items(), cycle(("-", "--", ":")), strict=False):
        label = f"{shorten(group)} (foreign)"
        axes.plot(*gaussian.curve(), color=INK, linestyle=dashes, linewidth=2.4, label=label)


def _as_one(gaussians: Iterable[Gaussian]) -> tuple[Values, Values]:
    """Many curves as one line with gaps, which makes the page smaller."""
    curves = [gaussian.curve(FEW_POINTS) for gaussian in gaussians]
    x, y = ([np.append(part, np.nan) for part in parts] for parts in zip(*curves, strict=True))
    return np.concatenate(x), np.concatenate(y)


def _histogram(values: Tensor, largest: float) -> tuple[Values, Values]:
    """Heights as shares of the largest one, and the edges of the bins."""
    counts, edges = np.histogram(values.double().numpy(), BINS, (0, largest))
    return counts / max(counts.max(), 1), edges
