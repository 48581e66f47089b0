"""Features of parts of the published sets for the transfer study, as files like those of `dsui embed`.

    python -m studies.transfer_embedding ROOT WEIGHTS FOLDER

writes FOLDER/svhn.safetensors and cifar100.safetensors with the first 5,000 test images, and cifar10.safetensors with
the first 2,000 training images of each class and the first 5,000 test images. `dsui embed` would write all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from dsui.backbones.named import load_backbone
from dsui.backbones.spec import allow
from dsui.data.dataset import ImageSet
from dsui.data.registry import load
from dsui.runs.embedding import Embedder
from studies.transfer_runs import write_foreign, write_known

SPEC, SIDE, BATCH = "studies.transfer_network:narrow_resnet", 32, 256
FOREIGN, TEST, TRAINING = 5_000, 5_000, 2_000
"""Images of a foreign set, test images of CIFAR-10, and training images of each of its classes."""


def embedded(embedder: Embedder, images: ImageSet, rows: Tensor) -> Tensor:
    """Features [N, M] of some images."""
    return torch.cat([embedder(images.read(batch)) for batch in rows.split(BATCH)])


def main(root: Path, weights: Path, folder: Path) -> None:
    allow(SPEC)
    embedder = Embedder(load_backbone(SPEC, weights, SIDE), torch.device("cpu"))
    for name in ("svhn", "cifar100"):
        features = embedded(embedder, load(name, "test", root), torch.arange(FOREIGN))
        write_foreign(folder / f"{name}.safetensors", features)
    train, test = load("cifar10", "train", root), load("cifar10", "test", root)
    rows = torch.cat([(train.labels == label).nonzero().flatten()[:TRAINING] for label in range(len(train.classes))])
    features = torch.cat([embedded(embedder, train, rows), embedded(embedder, test, torch.arange(TEST))])
    labels = torch.cat([train.labels[rows], test.labels[:TEST]])
    for_test = torch.arange(len(labels)) >= len(rows)
    write_known(folder / "cifar10.safetensors", features, labels, for_test, train.classes)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
