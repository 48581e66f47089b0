"""The shares of the components in the mixture of each class: even, or collapsed onto one component."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dsui.report.figures.canvas import Drawing, new_panel, styled
from dsui.report.figures.names import shorten

NAMED_CLASSES = 30
READING = (
    "Each row is a class: even colours mean that all its components are in use, one light cell in a dark row that one "
    "component has taken over."
)


@styled
def component_usage(name: str, shares: Tensor, classes: Sequence[str]) -> Drawing:
    """`shares` [C, K], eta of the head; components have no order, so they are sorted, the largest first."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    shares = shares.double().sort(1, descending=True).values
    count, components = shares.shape
    figure, axes = new_panel(height=1.1 + min(0.18 * count, 4.5))
    image = axes.imshow(
        shares.numpy(),
        cmap="cividis",
        vmin=0,
        vmax=float(shares.max()),
        aspect="auto",
        interpolation="none",
        extent=(0.5, components + 0.5, count - 0.5, -0.5),
    )
    if count <= NAMED_CLASSES:
        axes.set_yticks(range(count), [shorten(name) for name in classes])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)
    axes.set(xlabel="component, largest first", ylabel="class")
    figure.colorbar(image, label="share of the class", format=PercentFormatter(1, decimals=0))
    entropy = -(shares * shares.clamp(min=torch.finfo(shares.dtype).tiny).log()).sum(1)
    used = entropy.exp()  # the perplexity: how many equal components would be as even
    caption = f"Shares of the {components} components in each class; even shares would be {1 / components:.0%}."
    largest = f"The largest component holds {shares[:, 0].min():.0%} to {shares[:, 0].max():.0%} of its class"
    description = f"{largest}; in effect {used.min():.1f} to {used.max():.1f} are used."
    return Drawing(name, figure, caption, description, READING)
