"""What the density of a run with doubles sees: its own images upright, the same ones turned, and foreign images.

    python -m studies.doubles_density RUN results/doubles-density.jsonl

RUN was trained with doubles and held images out. Their log-density, ln sum_i w_i GMM_i(z) over the upright classes, is
counted in bins for the images as they are, for the same images turned by 90, 180 and 270 degrees, and for foreign
images of a training split. One JSON line for each of these; `studies.documents` draws them for docs/method.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsui.data.dataset import ImageSet
from dsui.data.foreign import as_foreign, drawn_training_images
from dsui.data.pipeline import open_loader, plain_batches
from dsui.device import choose_device
from dsui.evaluation.cache import BATCH
from dsui.methods.doubles import TURNS
from dsui.report.figures.canvas import BLUE, GREEN, VERMILION, Drawing, add_legend_below, new_panel, styled
from dsui.runs.images import held_out_images, read_split
from dsui.runs.model import Model, load_model, run_facts
from dsui.scores import log_density

FOREIGN = "cifar100"
UPRIGHT, TURNED, OTHERS = "own images", "own images, turned", "foreign images (CIFAR-100)"
COLORS = {UPRIGHT: BLUE, TURNED: VERMILION, OTHERS: GREEN}
BINS = 50
LOWEST = 0.005
"""The quantile of all values at which the axis begins; what lies below is counted in the first bin."""


class Counted(NamedTuple):
    """A histogram of log-densities, and their median."""

    images: str
    edges: list[float]
    counts: list[int]
    median: float


@torch.no_grad()
def log_densities(model: Model, images: ImageSet, device: torch.device, quarters: int = 0) -> Tensor:
    """[N], of the images turned by so many quarter turns."""
    found = []
    for batch in open_loader(images, device).stream(plain_batches(len(images.labels), BATCH)):
        outputs = model.method.predict(model.transform.plain(batch.images.rot90(quarters, (2, 3))))
        assert outputs.log_joint is not None
        found.append(-log_density(outputs.log_joint).cpu())
    return torch.cat(found)


def measure(run: Path, root: Path | None = None) -> Iterator[Counted]:
    facts, device = run_facts(run), choose_device()
    model = load_model(facts, device)
    own = held_out_images(facts.config, read_split(facts.config, facts.config.data, "train", root))
    turned = [log_densities(model, own, device, quarters) for quarters in range(1, TURNS)]
    foreign = as_foreign(drawn_training_images(FOREIGN, root), own)
    groups = {
        UPRIGHT: log_densities(model, own, device),
        TURNED: torch.cat(turned),
        OTHERS: log_densities(model, foreign, device),
    }
    together = torch.cat(list(groups.values()))
    lowest, highest = together.quantile(LOWEST).item(), together.max().item()
    for name, values in groups.items():
        counts, edges = np.histogram(values.clamp(min=lowest).numpy(), BINS, (lowest, highest))
        yield Counted(name, edges.round(2).tolist(), counts.tolist(), round(values.median().item(), 2))


def read(path: Path) -> list[Counted]:
    return [Counted(**json.loads(line)) for line in path.read_text().splitlines()]


@styled
def drawing(path: Path) -> Drawing:
    """Shares of the images of each group by log-density."""
    figure, axes = new_panel()
    groups = read(path)
    for group in groups:
        shares = 100 * np.array(group.counts) / sum(group.counts)
        axes.stairs(shares, group.edges, fill=True, color=COLORS[group.images], alpha=0.25)
        axes.stairs(shares, group.edges, color=COLORS[group.images], linewidth=1.2, label=group.images)
    axes.set(xlabel="log-density ln MoGMM(z)", ylabel="share of the images (%)", ylim=(0, None))
    add_legend_below(figure, axes)
    medians = ", ".join(f"{group.images} {group.median:.0f}" for group in groups)
    return Drawing(
        "doubles-density",
        figure,
        "What the density of DS-UI with doubles sees.",
        f"Medians of the log-density: {medians}.",
        "An image further to the left is less likely to belong to the data; the first bin holds all that lies below.",
    )


if __name__ == "__main__":
    out = Path(sys.argv[2])
    out.write_text("".join(f"{json.dumps(group._asdict())}\n" for group in measure(Path(sys.argv[1]))))
