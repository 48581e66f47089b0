"""Figure 2, right: the class densities ln(w_i GMM_i(z)) of a normal and of an abnormal image over the classes i.

A normal image has a high density in one class, an abnormal one a low density in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dsui.report.figures.canvas import (
    BLUE,
    HEIGHT,
    VERMILION,
    Drawing,
    add_legend_below,
    new_panel,
    styled,
)
from dsui.report.figures.names import shorten

NAMED_CLASSES = 20
MOST_TICKS = 5
"""More figures of this length would touch each other."""
AROUND, ROW = 0.8, 0.2
"""Inches of the axis with its label, and of a class."""
READING = (
    "A dot tells how well the image fits a class: the in-domain image should fit one class far better than all others, "
    "the foreign image should fit none well."
)


def densest(log_joint: Tensor, correct: Tensor) -> int:
    """The image of largest density among those classified correctly, or among all where none is. [N, C], [N]"""
    density = log_joint.double().logsumexp(1)
    return int((density.masked_fill(~correct, -float("inf")) if bool(correct.any()) else density).argmax())


def least_dense(log_joint: Tensor) -> int:
    """The image of smallest density."""
    return int(log_joint.double().logsumexp(1).argmin())


@styled
def profile(name: str, classes: Sequence[str], normal: Tensor, abnormal: Tensor, foreign: str) -> Drawing:
    """`normal` and `abnormal`: [C] ln(w_i GMM_i(z)) of one image each; `foreign` names the set of the abnormal one."""
    named = len(classes) <= NAMED_CLASSES
    figure, axes = new_panel(height=AROUND + ROW * len(classes) if named else HEIGHT)
    numbers = range(len(classes))
    descriptions = []
    for label, values, color, marker in (
        ("in-domain image", normal, BLUE, "o"),
        (f"image of {foreign}", abnormal, VERMILION, "X"),
    ):
        axes.plot(values.tolist(), numbers, color=color, marker=marker, linestyle="none", label=shorten(label))
        top = int(values.argmax())
        descriptions.append(
            f"The {label} is densest in {classes[top]} at {values[top]:.4g} nats, least at {values.min():.4g}"
        )
    if named:
        axes.set_yticks(numbers, [*map(shorten, classes)])
    axes.set(ylim=(len(classes) - 0.5, -0.5), ylabel="class", xlabel="log-density (nats)")
    axes.locator_params(axis="x", nbins=MOST_TICKS)
    add_legend_below(figure, axes)
    caption = "Class densities of the densest in-domain image and of the least dense foreign one."
    return Drawing(name, figure, caption, f"{'. '.join(descriptions)}.", READING)
