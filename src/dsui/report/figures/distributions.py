"""Figure 4: how Max.P. and entropy spread over the images of each class and over foreign ones.

Each group is drawn as the Gaussian of its mean and deviation, over histograms of all in-domain and all foreign images.
Everything is divided by its own maximum, since a class of which the model is sure can be a hundred times as narrow, and
so as high, as a set of which it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.report.figures.canvas import BLUE, INK, Drawing, legend_below, panel, pens, styled

LEGEND_CLASSES = 12
"""With more classes than this all of them share one colour and one line of the legend."""
BINS, POINTS = 40, 120


class Gaussian(NamedTuple):
    mean: float
    deviation: float

    def curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """x and exp(-(x - mean)^2 / 2 deviation^2), four deviations to each side; a spike where there is none."""
        if self.deviation == 0:
            return np.array([self.mean, self.mean]), np.array([0.0, 1.0])
        steps = np.linspace(-4, 4, POINTS)
        return self.mean + self.deviation * steps, np.exp(-0.5 * steps**2)


def fitted(values: Tensor) -> Gaussian:
    """Mean and deviation (ddof 1) of [N] values; a single value deviates by 0."""
    values = values.double()
    return Gaussian(values.mean().item(), values.std().item() if len(values) > 1 else 0.0)


@styled
def distributions(
    name: str, quantity: str, largest: float, own: Mapping[str, Tensor], foreign: tuple[str, Tensor] | None = None
) -> Drawing:
    """`own`: the values of each class's images, [N] each, between 0 and `largest`; `foreign`: a set's name and its."""
    figure, axes = panel()
    together = torch.cat(list(own.values()))
    groups = {group: fitted(values) for group, values in own.items()}
    means = [group.mean for group in groups.values()]
    told = f"Of {len(together):,} in-domain images the classes' means lie between {min(means):.3g} and {max(means):.3g}"
    axes.stairs(*_histogram(together, largest), fill=True, color=BLUE, alpha=0.25)
    if foreign is not None:
        axes.stairs(*_histogram(foreign[1], largest), color=INK, linewidth=0.8)
    many = len(groups) > LEGEND_CLASSES
    for number, ((group, gaussian), pen) in enumerate(zip(groups.items(), pens(), strict=False)):
        label = group if not many else f"{len(groups)} classes" if number == 0 else None
        color, dashes, width = (BLUE, "-", 0.6) if many else (pen.color, pen.dashes, 1.2)
        axes.plot(*gaussian.curve(), color=color, linestyle=dashes, linewidth=width, label=label)
    if foreign is not None:
        gaussian = fitted(foreign[1])
        axes.plot(*gaussian.curve(), color=INK, linewidth=2.4, label=f"{foreign[0]} (foreign)")
        told += f"; {foreign[0]} has mean {gaussian.mean:.3g} and deviation {gaussian.deviation:.3g}"
    axes.set(xlim=(0, largest), ylim=(0, 1.08), xlabel=quantity, ylabel="density / its maximum")
    legend_below(figure, axes, columns=4)
    ours = "each class (histogram of all: filled)"
    who = f"{ours} and foreign images (histogram: outlined)" if foreign else ours
    return Drawing(name, figure, f"{quantity[0].upper()}{quantity[1:]}: Gaussians fitted to {who}.", f"{told}.")


def _histogram(values: Tensor, largest: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Heights over the largest of them, and the edges of the bins."""
    counts, edges = np.histogram(values.double().numpy(), BINS, (0, largest))
    return counts / max(counts.max(), 1), edges
