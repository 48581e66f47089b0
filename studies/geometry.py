"""The paper's Figure 1 in numbers: how tight are the classes, and how far apart?

Measured on test digits, on features as a projecting head sees them: standardised, then scaled to unit length, so that
no net gains by growing its features. On that sphere the two numbers are linked (a class's mean squared distance to its
mean is 1 - |mean|^2), so read them together with their ratio.

    python -m studies.geometry results/geometry.jsonl

writes one JSON line for each variant and seed; `studies.documents` puts the table into docs/method.md.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from dsui.head import SCALE_AT_START
from dsui.objectives import DualSupervisedLoss, Objective
from studies.digits import CLASSES, Recipe, load, train

SEEDS = 5


class Variant(NamedTuple):
    objective: Objective | None
    """None: cross-entropy of a linear head."""
    scale: float = SCALE_AT_START


VARIANTS = {
    "plain CE": Variant(None),
    "bounded": Variant("bounded"),
    "bounded, logit scale from 16": Variant("bounded", 16.0),
    "sgvb": Variant("sgvb"),
}


class Geometry(NamedTuple):
    within: float
    """Mean distance of a feature to its class's mean."""
    between: float
    """Mean distance of two class means."""

    @property
    def ratio(self) -> float:
        return self.within / self.between


def measure(variant: Variant, seed: int) -> Geometry:
    recipe = Recipe(scale=variant.scale)
    images = load(seed, recipe.train_images)
    loss = None if variant.objective is None else DualSupervisedLoss(variant.objective)
    model = train(images, loss, seed, recipe)
    with torch.no_grad():
        h = model.backbone(images.test).double()
    z = torch.nn.functional.normalize((h - h.mean(0)) / h.std(0))
    means = torch.stack([z[images.test_labels == label].mean(0) for label in range(CLASSES)])
    within = (z - means[images.test_labels]).norm(dim=1).mean()
    return Geometry(within.item(), torch.pdist(means).mean().item())


def read(path: Path) -> dict[str, list[Geometry]]:
    """Rows by variant, in order of their seeds."""
    found: dict[str, list[Geometry]] = {name: [] for name in VARIANTS}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found[row["variant"]].append(Geometry(row["within"], row["between"]))
    return found


def table(rows: dict[str, list[Geometry]]) -> str:
    """The Markdown table of docs/method.md."""
    lines = ["| trained with | within a class | between class means | ratio |", "|---|---:|---:|---:|"]
    for name, measured in rows.items():
        columns = zip(*((g.within, g.between, g.ratio) for g in measured), strict=True)
        cells = [f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" for values in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(path: Path) -> None:
    with path.open("w") as file:
        for name, variant in VARIANTS.items():
            for seed in range(SEEDS):
                row = {"variant": name, "seed": seed, "data": "digits", **measure(variant, seed)._asdict()}
                print(json.dumps(row), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
