"""Where should the mixtures start? At random means of several sizes, or at EM on the features after some epochs.

Each variant has six seeds of the digits experiment, with K = 4. "EM start, unit variances" keeps the means that EM
finds and sets the variances back to 1; "shrunk" mixes each variance with 1, as ten further samples would.

    python -m studies.starts results/starts.jsonl

writes one JSON line for each variant and seed; `studies.documents` puts the table into docs/log/starts.md.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from dsui.head import MoGMMHead
from dsui.objectives import DualSupervisedLoss
from studies.digits import Recipe, TrainedNet, load, measure, train

SEEDS = 6
START_EPOCH = 5
PSEUDO_SAMPLES = 10
COLUMNS = {
    "accuracy": ("max_probability", "accuracy"),
    "errors AUROC": ("max_probability", "error_auroc"),
    "photos AUROC": ("energy", "photos_auroc"),
    "noise AUROC": ("energy", "noise_auroc"),
}
VarianceTreatment = Callable[[MoGMMHead, int], None]
"""Changes the variances of a head that EM started from so many samples."""


@torch.no_grad()
def random_means(deviation: float, head: MoGMMHead) -> None:
    head.means.normal_(std=deviation)


@torch.no_grad()
def unit_variances(head: MoGMMHead, _samples: int) -> None:
    head.log_variances.zero_()


@torch.no_grad()
def shrunk_variances(head: MoGMMHead, samples: int) -> None:
    count = samples / head.num_classes * head.mixing_weights[..., None]
    head.log_variances.copy_(((count * head.variances + PSEUDO_SAMPLES) / (count + PSEUDO_SAMPLES)).log())


def keep_variances(_head: MoGMMHead, _samples: int) -> None:
    """As EM left them."""


RANDOM = {
    f"random means, deviation {deviation}": partial(random_means, deviation) for deviation in (1.0, 0.3, 0.1, 0.03)
}
FROM_DATA: dict[str, VarianceTreatment] = {
    f"EM start after {START_EPOCH} epochs": keep_variances,
    f"EM start after {START_EPOCH} epochs, unit variances": unit_variances,
    f"EM start after {START_EPOCH} epochs, variances shrunk": shrunk_variances,
}


def run(variant: str, seed: int) -> dict[str, float]:
    recipe = Recipe()
    images = load(seed, recipe.train_images)

    def start(epoch: int, model: TrainedNet) -> None:
        head = model.head
        assert isinstance(head, MoGMMHead)
        if epoch == 0 and variant in RANDOM:
            RANDOM[variant](head)
        if epoch == START_EPOCH and variant in FROM_DATA:
            with torch.no_grad():
                head.initialize(model.backbone(images.train), images.train_labels)
            FROM_DATA[variant](head, len(images.train))

    figures = measure(train(images, DualSupervisedLoss(), seed, recipe, start), images)
    return {column: figures[score][metric] for column, (score, metric) in COLUMNS.items()}


def table(path: Path) -> str:
    """The Markdown table of docs/log/starts.md: mean ± deviation in %."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [f"| start | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * len(COLUMNS)]
    for variant in (*RANDOM, *FROM_DATA):
        runs = [row for row in rows if row["variant"] == variant]
        columns = [[100 * row[column] for row in runs] for column in COLUMNS]
        cells = [f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" for values in columns]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(path: Path) -> None:
    with path.open("w") as file:
        for variant in (*RANDOM, *FROM_DATA):
            for seed in range(SEEDS):
                row = {"variant": variant, "seed": seed, "data": "digits", **run(variant, seed)}
                print(json.dumps(row), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
