"""Names written into a picture of dots: near their dots, inside the picture, and never on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsui.report.figures.canvas import INK, PAPER
from dsui.report.figures.names import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEP = 6
"""Pixels between the places that are tried."""
AIR = 2
"""Pixels around a name."""
DOT_COST = 4.0
"""A name that covers a dot might as well be so many pixels further away."""
FAR = 20
"""A name this many pixels from its place is tied to it by a line."""
Points = NDArray[np.float64]


class Label(NamedTuple):
    """`at`: the point below which its dots begin; `centre`: their middle, where a line ends. Both as data."""

    text: str
    at: tuple[float, float]
    centre: tuple[float, float]


def write_labels(axes: Axes, labels: Sequence[Label], dots: Points) -> None:
    """Once the axes have their limits and titles. A name for which there is no room left is not written. `dots` [N, 2]
    are those that should not be covered."""
    from matplotlib.figure import Figure

    assert isinstance(axes.figure, Figure)
    axes.figure.draw_without_rendering()  # sets the layout, which tells where a pixel is
    picture = axes.get_window_extent()
    covered = axes.transData.transform(dots)
    taken: list[tuple[float, float, float, float]] = []
    for label in labels:
        text = axes.text(*label.at, shorten(label.text), ha="center", va="bottom", color=INK, fontsize=9)
        box = text.get_window_extent()
        width, height = box.width + 2 * AIR, box.height + 2 * AIR
        wanted = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
        xs = np.arange(picture.x0 + width / 2, picture.x1 - width / 2, STEP)
        ys = np.arange(picture.y0 + height / 2, picture.y1 - height / 2, STEP)
        tried = np.concatenate([wanted[None], np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2)])
        half = np.array([width / 2, height / 2])
        low, high = tried - half, tried + half
        fits = (low >= (picture.x0 - 1, picture.y0 - 1)).all(1) & (high <= (picture.x1 + 1, picture.y1 + 1)).all(1)
        for left, bottom, right, top in taken:
            fits &= (high <= (left, bottom)).any(1) | (low >= (right, top)).any(1)
        if not fits.any():
            text.remove()
            continue
        tried, low, high = tried[fits], low[fits], high[fits]
        distances = np.linalg.norm(tried - wanted, axis=1)
        inside = (covered >= low[:, None]).all(2) & (covered <= high[:, None]).all(2)
        best = int((distances + DOT_COST * inside.sum(1)).argmin())
        taken.append((*low[best], *high[best]))
        place = axes.transData.inverted().transform(tried[best])
        text.set(position=place, verticalalignment="center")
        text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.8})
        if distances[best] > FAR:
            axes.plot(*zip(place, label.centre, strict=True), color=INK, linewidth=0.5)
