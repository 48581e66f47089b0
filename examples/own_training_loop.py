"""A DS-UI head in your own training loop: only two lines change.

Trains a small network on scikit-learn's digits and asks two questions: which predictions are wrong, and which images
are not digits at all? Run it with `python examples/own_training_loop.py`; it takes some seconds on a CPU.
"""

from __future__ import annotations

import torch
from torch import nn

from dsui import DualSupervisedLoss, MoGMMHead
from dsui.data.digits import digits
from dsui.data.photos import photo_patches
from dsui.evaluation.metrics import auroc
from dsui.scores import log_density, max_probability

EPOCHS, BATCH, TRAINING_IMAGES = 20, 64, 400

torch.manual_seed(0)
images, labels = digits()  # [1797, 1, 8, 8] in [0, 1]
order = torch.randperm(len(images))
train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]

backbone = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
)
head = MoGMMHead(in_features=64 * 3 * 3, num_classes=10)  # instead of nn.Linear(64 * 3 * 3, 10)
loss = DualSupervisedLoss()  # instead of nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW([*backbone.parameters(), *head.parameters()], lr=2e-3)

for epoch in range(EPOCHS):
    total = 0.0
    for batch in train[torch.randperm(len(train))].split(BATCH):
        optimizer.zero_grad()
        value = loss(head(backbone(images[batch])), labels[batch], head)
        value.backward()
        optimizer.step()
        total += value.item() * len(batch) / len(train)
    if (epoch + 1) % 5 == 0:
        print(f"epoch {epoch + 1:2d}: loss {total:.3f}")

backbone.eval()
head.eval()
with torch.no_grad():
    known = head(backbone(images[test]))
    foreign = head(backbone(photo_patches(500, side=8, seed=0)))  # pieces of photographs

wrong = known.logits.argmax(1) != labels[test]
doubt = max_probability(known.logits)
strangeness = log_density(torch.cat([known.log_joint, foreign.log_joint]))  # minus the log-density of the features
is_foreign = torch.arange(len(strangeness)) >= len(test)

print(f"\n{len(test)} test digits, accuracy {1 - wrong.double().mean():.1%}")
print(f"Is this prediction wrong?  {int(wrong.sum())} errors, ranked by probability: AUROC {auroc(doubt, wrong):.1%}")
print(f"Is this a digit at all?    500 photographs, ranked by density: AUROC {auroc(strangeness, is_foreign):.1%}")
