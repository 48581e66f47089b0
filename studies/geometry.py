"""The paper's Figure 1 in numbers: how tight are the classes, and how far apart?

Measured on test images, on features as a projecting head sees them: standardised, then scaled to unit length, so that
no net gains by growing its features. On that sphere the two numbers are linked (a class's mean squared distance to its
mean is 1 - |mean|^2), so read them together with their ratio.

    python -m studies.geometry results/geometry.jsonl
    python -m studies.geometry results/geometry-cifar10.jsonl geometry studies/geometry

The first trains on digits and measures them. The second measures the finished runs of a study: a shipped grid, or a
YAML file, and its folder. A run that held images out is measured on these instead of the test images. Both write one
JSON line for each variant and seed; `studies.documents` puts the table into docs/method.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dsui.data.pipeline import open_loader, plain_batches
from dsui.device import choose_device
from dsui.errors import DsuiError
from dsui.evaluation.cache import BATCH
from dsui.evaluation.statistics import summarize
from dsui.experiments.grid_file import load_grid
from dsui.experiments.study import Study
from dsui.head import SCALE_AT_START
from dsui.methods.network import FeatureNetwork
from dsui.objectives import DualSupervisedLoss, Objective
from dsui.runs.folder import WEIGHTS
from dsui.runs.images import held_out_images, known_images, read_split
from dsui.runs.model import load_model, run_facts
from dsui.runs.training_name import training_name
from studies.digits import Recipe, load, train

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
        return of_features(model.backbone(images.test), images.test_labels)


def of_features(h: Tensor, labels: Tensor) -> Geometry:
    """Of features [N, M] and their labels [N]."""
    h = h.double()
    z = torch.nn.functional.normalize((h - h.mean(0)) / h.std(0))
    means = torch.stack([z[labels == label].mean(0) for label in labels.unique()])
    within = (z - means[labels.unique(return_inverse=True)[1]]).norm(dim=1).mean()
    return Geometry(within.item(), torch.pdist(means).mean().item())


@torch.no_grad()
def measure_run(run: Path, device: torch.device, root: Path | None = None) -> Geometry:
    """Of the features that a finished run gives to its last layer's projection or, where it has none, to that layer."""
    facts = run_facts(run)
    config, model = facts.config, load_model(facts, device)
    network = getattr(model.method, "network", None)
    if not isinstance(network, FeatureNetwork):
        raise DsuiError(f"{run} holds {config.method}, whose features are not those of one network; leave it out.")
    if config.held_out > 0:
        images = held_out_images(config, read_split(config, config.data, "train", root))
    else:
        images = known_images(config, read_split(config, config.data, "test", root))
    batches = open_loader(images, device).stream(plain_batches(len(images.labels), BATCH))
    features, labels = zip(*((network(model.transform.plain(b.images)), b.labels) for b in batches), strict=True)
    return of_features(torch.cat(features), torch.cat(labels))


def measure_study(study: Study, device: torch.device) -> Iterator[dict[str, object]]:
    """A row for each run of the study that is trained."""
    for cell in study.grid.cells:
        run = study.run_path(cell)
        if (run / WEIGHTS).exists():
            config = cell.config
            about = {"variant": cell.label, "seed": config.seed, "data": config.data, "backbone": config.backbone}
            yield {**about, "recipe": training_name(config), **measure_run(run, device, study.root)._asdict()}


def read(path: Path) -> dict[str, list[Geometry]]:
    """Rows by variant, in the order of the file."""
    found: dict[str, list[Geometry]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["variant"], []).append(Geometry(row["within"], row["between"]))
    return found


def table(rows: dict[str, list[Geometry]]) -> str:
    """The Markdown table of docs/method.md; a single run has no deviation."""
    lines = ["| trained with | within a class | between class means | ratio |", "|---|---:|---:|---:|"]
    for name, measured in rows.items():
        columns = zip(*((g.within, g.between, g.ratio) for g in measured), strict=True)
        summaries = (summarize(values) for values in columns)
        cells = [f"{s.mean:.3f}" + (f" ± {s.deviation:.3f}" if s.deviation is not None else "") for s in summaries]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def digit_rows() -> Iterator[dict[str, object]]:
    for name, variant in VARIANTS.items():
        for seed in range(SEEDS):
            yield {"variant": name, "seed": seed, "data": "digits", **measure(variant, seed)._asdict()}


def main(path: Path, grid: str = "", folder: str = "") -> None:
    """Write the rows of digits, or those of the study of `grid` in `folder`."""
    if not grid:
        rows = digit_rows()
    else:
        study = Study(load_grid(grid), Path(folder))
        if not any((study.run_path(cell) / WEIGHTS).exists() for cell in study.grid.cells):
            raise SystemExit(
                f"{folder} has no finished run of {grid}; begin with dsui reproduce {grid} --out {folder}."
            )
        rows = measure_study(study, choose_device())
    with path.open("w") as file:
        for row in rows:
            print(json.dumps(row), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])
