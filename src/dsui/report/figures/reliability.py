"""Reliability diagram: the accuracy of predictions at each confidence, and how many predictions have it."""

from __future__ import annotations

from torch import Tensor

from dsui.evaluation.reliability import BINS, ece, reliability_bins
from dsui.report.figures.canvas import BLUE, FAINT, Drawing, new_panel, styled

READING = (
    "Below the faint line the model is more confident than it is right, above it less; the bars show how many images "
    "have each confidence."
)


@styled
def reliability(name: str, confidence: Tensor, correct: Tensor) -> Drawing:
    """`confidence` [N] in [0, 1], `correct` [N]; bins of equal width."""
    from matplotlib.ticker import PercentFormatter

    bins = reliability_bins(confidence, correct)
    figure, _ = new_panel(height=3.3)
    figure.clear()
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = (bins.samples > 0).numpy()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    axes.plot(bins.confidence[filled], bins.accuracy[filled], color=BLUE, marker="o")
    axes.set(ylim=(0, 1.03), ylabel="accuracy")
    centres = [(place + 0.5) / BINS for place in range(BINS)]
    below.bar(centres, (bins.samples / bins.samples.sum()).tolist(), 0.9 / BINS, color=BLUE)
    below.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence: largest predicted probability", ylabel="images")
    for axis in (axes.yaxis, below.xaxis, below.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    error = 100 * ece(confidence, correct)
    caption = f"Accuracy over confidence; a calibrated model is on the faint line. ECE {error:.2f} %, lower is better."
    points = [
        f"{accuracy:.0%} at {confident:.0%}"
        for confident, accuracy in zip(bins.confidence[filled].tolist(), bins.accuracy[filled].tolist(), strict=True)
    ]
    return Drawing(name, figure, caption, f"Accuracy at mean confidence: {', '.join(points)}.", READING)
