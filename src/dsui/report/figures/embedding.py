"""Figure 7: the features in two dimensions by t-SNE (van der Maaten and Hinton, JMLR 2008), with openTSNE.

Distances within a cluster and between near ones mean something; sizes of clusters and long distances do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.checks import require
from dsui.report.figures.canvas import INK, PAPER, Drawing, dots, panel, short, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 400
"""Most images of one set, evenly chosen; more of them take longer than all else of a page."""
PERPLEXITY, SEED = 30.0, 0
NAMED_CLASSES = 20
"""More classes than this are not named in the figure."""
DOT, ARM = 3.4, 0.011
"""Points across a dot, and the arm of a cross as a share of half the figure."""
Places = NDArray[np.float64]


def evenly_chosen(images: int, points: int) -> Tensor:
    """Indices of at most `points` of that many images."""
    return torch.arange(min(images, points)) * images // min(images, points)


def placed(features: Tensor) -> Places:
    """[N, M] to [N, 2]; the same features to the same places."""
    require("openTSNE")
    from openTSNE import TSNE

    if bool((features == features[:1]).all()):
        return np.zeros((len(features), 2))
    perplexity = min(PERPLEXITY, max(1.0, (len(features) - 1) / 3))
    settings = {"initialization": "pca", "neighbors": "exact", "negative_gradient_method": "bh"}
    tsne = TSNE(perplexity=perplexity, random_state=SEED, n_jobs=1, **settings)
    return np.asarray(tsne.fit(features.double().numpy()))


@styled
def embedding(
    name: str,
    places: Places,
    labels: Tensor,
    classes: Sequence[str],
    foreign: tuple[str, Places] | None = None,
) -> Drawing:
    """`labels` index `classes`, one for each of `places` [N, 2]; foreign images have no class."""
    figure, axes = panel(height=3.9)
    everywhere = places if foreign is None else np.concatenate([places, foreign[1]])
    low, high = everywhere.min(0), everywhere.max(0)
    centre, half = (low + high) / 2, 0.55 * max(float((high - low).max()), 1e-9)
    axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if foreign is not None:
        arm = ARM * half
        _segments(axes, foreign[1], [(-arm, -arm, arm, arm), (-arm, arm, arm, -arm)], INK, width=0.6)
    for label, (text, color) in enumerate(zip(classes, dots(), strict=False)):
        own = places[(labels == label).numpy()]
        if len(own) == 0:
            continue
        _segments(axes, own, [(-1e-4 * half, 0.0, 1e-4 * half, 0.0)], color, width=DOT)
        if len(classes) <= NAMED_CLASSES:
            frame = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.8}
            x, y = float(np.median(own[:, 0])), float(np.quantile(own[:, 1], 0.95)) + 0.03 * half
            axes.text(x, y, short(text), ha="center", va="bottom", color=INK, fontsize=9, bbox=frame)
    told = f"{len(places)} in-domain images" + ("" if foreign is None else f" and {len(foreign[1])} of {foreign[0]}")
    caption = f"t-SNE of {told}{'' if foreign is None else ' (crosses)'}; axes without units."
    return Drawing(name, figure, caption, f"Each dot is an image, coloured by its class{_listed(classes)}.")


def _segments(axes: Axes, places: Places, strokes: Sequence[tuple[float, ...]], color: str, width: float) -> None:
    """The same short strokes (from x, y to x, y) at every place as one path: a tenth of the size of so many markers."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    ends = np.asarray(strokes).reshape(1, -1, 2)
    vertices = (places[:, None] + ends).reshape(-1, 2)
    path = Path(vertices, np.tile([Path.MOVETO, Path.LINETO], len(vertices) // 2))
    path.should_simplify = False
    patch = PathPatch(path, edgecolor=color, facecolor="none", linewidth=width, capstyle="round")
    patch.set_snap(False)  # moved to whole pixels a dot has no length, and is not drawn
    axes.add_patch(patch)


def _listed(classes: Sequence[str]) -> str:
    return f": {', '.join(classes)}" if len(classes) <= NAMED_CLASSES else f", one of {len(classes)}"
