"""How many images does a class need? DS-UI beside softmax on 20, 100 and 1,000 images of each class of CIFAR-10.

    python -m studies.transfer_curve FOLDER results/transfer-curve.jsonl

FOLDER holds what `studies.transfer_embedding` writes: features of the network of `studies.transfer`, which was trained
on photographs of Tiny ImageNet. The settings are those that were chosen there, beside the usual logit scale of DS-UI. A
draw takes other images.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from dsui.data.feature_file import read_feature_file
from dsui.runs.files import append_lines
from studies.transfer import CHOSEN
from studies.transfer_runs import Task, run, write_known

SIZES, DRAWS = (20, 100, 1000), 5
FOREIGN = ("cifar100", "svhn")
LINES: dict[str, tuple[str, Mapping[str, object]]] = {
    "DS-UI": ("dsui", CHOSEN["dsui"]),
    "DS-UI, scale 48": ("dsui", {"components": 1}),
    "softmax": ("msp", CHOSEN["msp"]),
}
"""Method and settings. The second line has the logit scale that training starts from by default."""


def task_of_size(folder: Path, size: int, draw: int, files: Path) -> Task:
    """Features of `size` training images of each class, and of all test images."""
    whole = read_feature_file(folder / "cifar10.safetensors")
    assert whole.labels is not None
    assert whole.split is not None
    generator = torch.Generator().manual_seed(1000 * size + draw)
    chosen = [whole.split.nonzero().flatten()]
    for label in whole.labels.unique():
        rows = ((whole.labels == label) & ~whole.split).nonzero().flatten()
        chosen.append(rows[torch.randperm(len(rows), generator=generator)[:size]])
    rows = torch.cat(chosen).sort().values
    known = write_known(
        files / "known.safetensors", whole.features[rows], whole.labels[rows], whole.split[rows], whole.classes
    )
    far = {name: folder / f"{name}.safetensors" for name in FOREIGN}
    return Task(f"{size:,} a class", draw, known, far)


def main(folder: Path, out: Path) -> None:
    for draw in range(DRAWS):
        for size in SIZES:
            with tempfile.TemporaryDirectory() as files:
                task = task_of_size(folder, size, draw, Path(files))
                for label, (method, settings) in LINES.items():
                    rows = [json.loads(row.to_json()) | {"label": label} for row in run(task, method, settings)]
                    append_lines(out, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
                print(f"draw {draw} of {size} images a class is scored.", flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
