"""Figure 7: the features in two dimensions, a dot for each image, coloured by its class; foreign images are crosses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from dsui.report.figures.canvas import INK, Drawing, class_colors, new_panel, new_panels, styled
from dsui.report.figures.label_places import Label, write_labels
from dsui.report.tsne import Positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 400
"""Most images of one set; with more of them t-SNE takes longer than all else of a page."""
NAMED_CLASSES = 20
"""With more classes the figure does not name them."""
SIDE = 3.9
"""Height of a panel in inches."""
READING = (
    "Images that lie together look alike to the model, so each class should form a group of its own; the size of a "
    "group and long distances mean nothing."
)
FOREIGN_READING = (
    "Images that lie together look alike to the model, so the crosses should keep away from the groups of the classes; "
    "the size of a group and long distances mean nothing."
)
TOP = 0.8
"""The share of a class's dots that its name should stand above; those further up may be strays."""
DOT, ARM = 3.4, 0.011
"""The width of a dot in points, and the arm of a cross as a share of half the figure."""


class EmbeddingPanel(NamedTuple):
    """`labels` index `classes`, one for each of `positions` [N, 2]; foreign images, a set's name and positions, have
    no class."""

    positions: Positions
    labels: Tensor
    classes: Sequence[str]
    foreign: tuple[str, Positions] | None = None
    title: str = ""


@styled
def embedding(
    name: str,
    positions: Positions,
    labels: Tensor,
    classes: Sequence[str],
    foreign: tuple[str, Positions] | None = None,
) -> Drawing:
    """One panel."""
    figure, axes = new_panel(height=SIDE)
    panel = EmbeddingPanel(positions, labels, classes, foreign)
    _draw_dots(axes, panel)
    _name_classes(axes, panel)
    shown = f"{len(positions)} in-domain images" + (
        "" if foreign is None else f" and {len(foreign[1])} of {foreign[0]}"
    )
    caption = f"t-SNE of {shown}{'' if foreign is None else ' (crosses)'}; axes without units."
    description = f"Each dot is an image, coloured by its class{_listed(classes)}."
    return Drawing(name, figure, caption, description, READING if foreign is None else FOREIGN_READING)


@styled
def embeddings(name: str, panels: Sequence[EmbeddingPanel], caption: str) -> Drawing:
    """Panels beside each other, two in a row, each below its title."""
    figure, grid = new_panels(-(-len(panels) // 2), 2, height=SIDE)
    for axes, panel in zip(grid, panels, strict=False):
        _draw_dots(axes, panel)
        axes.set_title(panel.title)
    for unused in grid[len(panels) :]:
        unused.remove()
    for axes, panel in zip(grid, panels, strict=False):
        _name_classes(axes, panel)
    counts = "; ".join(
        f"{panel.title}: {len(panel.positions)} images"
        + ("" if panel.foreign is None else f" and {len(panel.foreign[1])} of {panel.foreign[0]} (crosses)")
        for panel in panels
    )
    classes = dict.fromkeys(name for panel in panels for name in panel.classes)
    description = f"Each dot is an image, coloured by its class{_listed([*classes])}. {counts}."
    return Drawing(name, figure, caption, description, FOREIGN_READING)


def _draw_dots(axes: Axes, panel: EmbeddingPanel) -> None:
    everywhere = _all_positions(panel)
    low, high = everywhere.min(0), everywhere.max(0)
    centre, half = (low + high) / 2, 0.55 * max(float((high - low).max()), 1e-9)
    axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if panel.foreign is not None:
        arm = ARM * half
        _segments(axes, panel.foreign[1], [(-arm, -arm, arm, arm), (-arm, arm, arm, -arm)], INK, width=0.6)
    for (_, own), color in zip(_by_class(panel), class_colors(), strict=False):
        if len(own) > 0:
            _segments(axes, own, [(-1e-4 * half, 0.0, 1e-4 * half, 0.0)], color, width=DOT)


def _name_classes(axes: Axes, panel: EmbeddingPanel) -> None:
    """Above the dots of each class that has any."""
    if len(panel.classes) > NAMED_CLASSES:
        return
    gap = 0.015 * (axes.get_ylim()[1] - axes.get_ylim()[0])
    labels = []
    for text, own in _by_class(panel):
        if len(own) > 0:
            x, y = np.median(own, axis=0).tolist()
            labels.append(Label(text, (x, float(np.quantile(own[:, 1], TOP)) + gap), (x, y)))
    write_labels(axes, labels, _all_positions(panel))


def _by_class(panel: EmbeddingPanel) -> list[tuple[str, Positions]]:
    return [(text, panel.positions[(panel.labels == label).numpy()]) for label, text in enumerate(panel.classes)]


def _all_positions(panel: EmbeddingPanel) -> Positions:
    return panel.positions if panel.foreign is None else np.concatenate([panel.positions, panel.foreign[1]])


def _segments(axes: Axes, positions: Positions, strokes: Sequence[tuple[float, ...]], color: str, width: float) -> None:
    """The same short strokes (from x, y to x, y) at every position as one path, a tenth of the size of markers."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    ends = np.asarray(strokes).reshape(1, -1, 2)
    vertices = (positions[:, None] + ends).reshape(-1, 2)
    path = Path(vertices, np.tile([Path.MOVETO, Path.LINETO], len(vertices) // 2))
    path.should_simplify = False
    patch = PathPatch(path, edgecolor=color, facecolor="none", linewidth=width, capstyle="round")
    patch.set_snap(False)  # snapped to whole pixels a dot has no length and is not drawn
    axes.add_patch(patch)


def _listed(classes: Sequence[str]) -> str:
    return f": {', '.join(classes)}" if len(classes) <= NAMED_CLASSES else f", one of {len(classes)}"
