"""One network, many ways to ask whether an image is foreign: detectors compared on the same outputs.

A plain softmax network and DS-UI are trained on the embedded digits. One forward pass of each over digits and pieces of
photographs gives their outputs, and every score and detector is computed from those. Run it with
`python examples/compare_detectors.py`; it takes some seconds on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsui import UncertaintyClassifier
from dsui.data.digits import digits
from dsui.data.photos import photo_patches
from dsui.detectors import registry
from dsui.evaluation.metrics import auroc, fpr95
from dsui.outputs import Outputs
from dsui.runs.model import forward
from dsui.scores import entropy, log_density, max_probability

TRAINING_IMAGES = 600

images, labels = digits()  # [1797, 1, 8, 8] in [0, 1]
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
photographs = photo_patches(500, side=8, seed=0)


def outputs(classifier: UncertaintyClassifier, pixels: Tensor, known: Tensor | None = None) -> Outputs:
    model = classifier.predictor_.model
    found = forward(model.method, model.transform, (pixels * 255).round().to(torch.uint8))
    return Outputs.of(found.tensors() | ({} if known is None else {"labels": known}))


for method in ("msp", "dsui"):
    classifier = UncertaintyClassifier("small", method=method, recipe="demo", calibration=0, device="cpu")
    classifier.fit(images[train], labels[train], epochs=25)
    training, own = outputs(classifier, images[train], labels[train]), outputs(classifier, images[test], labels[test])
    foreign = outputs(classifier, photographs)

    scores = {"max probability": max_probability, "entropy": entropy}
    found = {name: (score(own.logits), score(foreign.logits)) for name, score in scores.items()}
    if own.log_joint is not None and foreign.log_joint is not None:
        found["log-density"] = (log_density(own.log_joint), log_density(foreign.log_joint))
    for name in ("energy", "knn", "mahalanobis", "vim"):
        detector = registry.build(name).fit(training)
        found[name] = (detector.score(own), detector.score(foreign))

    accuracy = (own.predictions == labels[test]).double().mean()
    print(f"\n{method}: accuracy {accuracy:.1%}; {len(test)} digits against {len(photographs)} photographs")
    print("detector            AUROC %   FPR95 %   (of photographs accepted when 95 % of digits are)")
    is_foreign = torch.arange(len(test) + len(photographs)) >= len(test)
    joined = {name: torch.cat(pair) for name, pair in found.items()}
    for name, values in sorted(joined.items(), key=lambda entry: -auroc(entry[1], is_foreign)):
        print(f"{name:18s} {100 * auroc(values, is_foreign):8.1f} {100 * fpr95(values, is_foreign):9.1f}")
