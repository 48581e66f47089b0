"""A bare training loop on 256 digits of scikit-learn, for studies that reach into the head: `geometry` and `starts`.

It trains DS-UI or a plain linear head on the same net, data, order and schedule. Every seed draws other training
images. The parameters of the mixture have no weight decay; everything else is equal.

The settings were chosen by these same test digits, with 35 trials of the DS-UI head and 3 of the linear one
(docs/log/digits-choice.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.small import SmallNet
from dsui.data.digits import SIDE, digits, split
from dsui.data.noise import uniform_noise
from dsui.data.photos import photo_patches
from dsui.evaluation.metrics import auroc
from dsui.head import SCALE_AT_START, MoGMMHead
from dsui.objectives import DualSupervisedLoss
from dsui.scores import energy, max_probability

CLASSES = 10
FOREIGN_IMAGES = 1500
FOREIGN_SEED = 0


@dataclass(frozen=True)
class Recipe:
    train_images: int = 256
    epochs: int = 40
    batch: int = 64
    peak_rate: float = 3e-3
    weight_decay: float = 5e-4
    components: int = 4
    scale: float = SCALE_AT_START


class Images(NamedTuple):
    """One seed's data, pixels in [-1, 1]."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    photos: Tensor
    noise: Tensor


class TrainedNet(NamedTuple):
    backbone: SmallNet
    head: nn.Linear | MoGMMHead


def load(seed: int, train_images: int) -> Images:
    pixels, labels = digits()
    train, test = split(labels, train_images, seed)
    photos = photo_patches(FOREIGN_IMAGES, SIDE, FOREIGN_SEED)
    noise = uniform_noise(FOREIGN_IMAGES, (1, SIDE, SIDE), FOREIGN_SEED)
    pixels, photos, noise = (2 * images - 1 for images in (pixels, photos, noise))
    return Images(pixels[train], labels[train], pixels[test], labels[test], photos, noise)


def train(
    images: Images,
    objective: DualSupervisedLoss | None,
    seed: int,
    recipe: Recipe,
    before_epoch: Callable[[int, TrainedNet], None] = lambda _epoch, _model: None,
) -> TrainedNet:
    """Train with the given objective, or with cross-entropy on a plain linear head if it is None.

    `before_epoch` is called with the number of the epoch and the net.
    """
    torch.manual_seed(seed)
    backbone = SmallNet()
    head: nn.Linear | MoGMMHead
    if objective is None:
        head = nn.Linear(backbone.out_features, CLASSES)
        decayed, undecayed = [*backbone.parameters(), *head.parameters()], []
    else:
        head = MoGMMHead(backbone.out_features, CLASSES, recipe.components, logit_scale=recipe.scale)
        decayed, undecayed = [*backbone.parameters()], [*head.parameters()]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=recipe.peak_rate)
    steps = recipe.epochs * (len(images.train) // recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.peak_rate, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    model = TrainedNet(backbone, head)
    for epoch in range(recipe.epochs):
        before_epoch(epoch, model)
        shuffled = torch.randperm(len(images.train), generator=order)
        for batch in shuffled[: steps // recipe.epochs * recipe.batch].split(recipe.batch):
            out, labels = head(backbone(images.train[batch])), images.train_labels[batch]
            if objective is None or isinstance(head, nn.Linear):
                loss = F.cross_entropy(out, labels)
            else:
                loss = objective(out, labels, head)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    for part in model:
        part.eval()
    return model


@torch.no_grad()
def measure(model: TrainedNet, images: Images) -> dict[str, dict[str, float]]:
    """Per score: accuracy, and AUROC for errors and against each foreign set."""
    outputs = [model.head(model.backbone(part)) for part in (images.test, images.photos, images.noise)]
    logits = [out if isinstance(out, Tensor) else out.logits for out in outputs]
    uncertainties = {score.__name__: [score(y) for y in logits] for score in (max_probability, energy)}
    errors = logits[0].argmax(1) != images.test_labels
    return {
        name: {
            "accuracy": 1 - errors.double().mean().item(),
            "error_auroc": auroc(in_domain, errors),
            "photos_auroc": _foreign_auroc(in_domain, photos),
            "noise_auroc": _foreign_auroc(in_domain, noise),
        }
        for name, (in_domain, photos, noise) in uncertainties.items()
    }


def _foreign_auroc(in_domain: Tensor, foreign: Tensor) -> float:
    is_foreign = torch.arange(len(in_domain) + len(foreign)) >= len(in_domain)
    return auroc(torch.cat([in_domain, foreign]), is_foreign)
