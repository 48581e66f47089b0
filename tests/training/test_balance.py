"""Classes of uneven size: what sampling and adjusted logits change, and what a sample's weight means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.classifier import UncertaintyClassifier
from dsui.data.dataset import MemorySet, subset
from dsui.errors import DsuiError
from dsui.methods.registry import adjustable, build
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.distributed import World
from dsui.training.trainer import Trainer
from tests.support.on_digits import CPU, images, train

UNEVEN = {3: 60, 5: 60, 8: 6}
"""How many training digits of each kind there are."""


def uneven(seed: int = 0) -> tuple[MemorySet, MemorySet]:
    """Training images, of which few are eights, and as many test images of each class."""
    whole, rest = images("test", seed), images("train", seed)
    place = {digit: label for label, digit in enumerate(UNEVEN)}
    parts = []
    for source, counts in ((whole, UNEVEN), (rest, dict.fromkeys(UNEVEN, 20))):
        chosen = torch.cat([(source.labels == digit).nonzero()[:count, 0] for digit, count in counts.items()])
        labels = torch.tensor([place[int(label)] for label in source.labels[chosen]])
        parts.append(MemorySet("digits", tuple(map(str, UNEVEN)), source.images[chosen], labels))
    return parts[0], parts[1]


def trainer_for(method: str, training: MemorySet, weights: Tensor | None = None, **settings: object) -> Trainer:
    overrides, options = method_options(method, {"epochs": 8, "batch": 21, **settings})
    recipe = load_recipe("demo", "digits", overrides)
    config = RunConfig(
        data="digits", backbone="small", method=method, seed=0, size=8, channels=1, recipe=recipe, options=options
    )
    return Trainer(config, training, CPU, World(), sample_weight=weights)


@torch.no_grad()
def class_accuracies(trainer: Trainer, test: MemorySet) -> list[float]:
    found = trainer.method.predict(trainer.transform.plain(test.images)).predictions == test.labels
    return [found[test.labels == label].double().mean().item() for label in range(len(test.classes))]


@pytest.mark.parametrize("method", ["msp", "dsui"])
def test_adjusted_logits_find_more_of_a_rare_class(method: str) -> None:
    found = {}
    for balance in ("none", "logits"):
        accuracies = []
        for seed in range(2):
            training, test = uneven(seed)
            trainer = trainer_for(method, training, balance=balance)
            train(trainer)
            accuracies.append(class_accuracies(trainer, test))
        found[balance] = np.mean(accuracies, 0)
    # 10 and 13 points with five seeds and ten classes (docs/training.md); here the class has 20 test images
    assert found["logits"][2] > found["none"][2] + 0.05, found
    assert found["logits"].mean() > found["none"].mean(), found


def test_sampling_meets_every_class_equally_often_in_every_batch_order() -> None:
    training, _ = uneven()
    trainer = trainer_for("msp", training, balance="sampling")
    for epoch in range(3):
        met = torch.bincount(training.labels[trainer.order(epoch).flatten() % len(training.labels)])
        assert met.tolist() == [42, 42, 42]


def test_an_adjusted_loss_is_that_of_logits_with_the_classes_log_shares_added() -> None:
    shares = torch.tensor([0.7, 0.2, 0.1]).log()
    recipe = load_recipe("demo", "digits")
    labels = torch.tensor([0, 1, 2, 1])
    for name in ("msp", "logitnorm", "bbb", "rotpred", "dsui"):
        torch.manual_seed(0)
        method = build(name, "small", 1, 3, recipe).eval()
        method.set_class_counts(torch.tensor([70, 20, 10]))
        output = method(torch.randn(4, 1, 8, 8))
        method.loss(output, labels)
        plain = method.terms["cross_entropy"]
        method.adjust(shares)
        method.loss(output, labels)
        logits = method.logits(output).detach()
        logits = logits / (0.04 * logits.norm(dim=1, keepdim=True)) if name == "logitnorm" else logits
        expected = F.cross_entropy((logits + shares).double(), labels)
        assert method.terms["cross_entropy"].item() == pytest.approx(expected.item(), rel=1e-5), name  # float32
        assert method.terms["cross_entropy"] != plain
        assert method.state_dict().keys() == build(name, "small", 1, 3, recipe).state_dict().keys()


def test_members_and_doubles_adjust_too() -> None:
    shares = torch.tensor([0.7, 0.2, 0.1]).log()
    ensemble = build("ensemble", "small", 1, 3, load_recipe("demo", "digits"), {"members": 2})
    ensemble.adjust(shares)
    assert ensemble.adjustable
    assert isinstance(ensemble.members, torch.nn.ModuleList)
    assert all(torch.equal(each.log_shares, shares) for each in ensemble.members)  # type: ignore[arg-type]
    doubled = build("dsui", "small", 1, 3, load_recipe("demo", "digits", {"doubles": "turns"}))
    doubled.adjust(shares)
    assert doubled.adjustable
    assert torch.equal(doubled.method.log_shares, shares.repeat(4))  # type: ignore[union-attr, arg-type]


def test_mixtures_know_the_classes_as_they_were_met_and_forget_it_where_logits_are_adjusted() -> None:
    training, _ = uneven()
    counts = torch.tensor([60, 60, 6]) / 126
    for balance, during, after in (
        ("none", counts, counts),
        ("sampling", torch.full((3,), 1 / 3), torch.full((3,), 1 / 3)),
        ("logits", counts, torch.full((3,), 1 / 3)),
    ):
        trainer = trainer_for("dsui", training, balance=balance, epochs=1)
        torch.testing.assert_close(trainer.method.head.class_prior, during)  # type: ignore[union-attr]
        train(trainer)
        torch.testing.assert_close(trainer.method.head.class_prior, after)  # type: ignore[union-attr]


def test_a_method_whose_logits_cannot_be_adjusted_names_those_that_can() -> None:
    training, _ = uneven()
    with pytest.raises(DsuiError, match=r"dpn takes no adjusted logits; balance by --balance sampling, or choose a .*"):
        trainer_for("dpn", training, balance="logits")
    assert set(adjustable()) == {"dsui", "dsui-density", "msp", "mc-dropout", "bbb", "logitnorm", "rotpred"}


def test_an_image_of_weight_two_trains_as_the_image_twice_to_the_last_bit() -> None:
    whole = subset(images("train", 0), torch.arange(60), "digits")
    assert isinstance(whole, MemorySet)
    weights = torch.ones(60, dtype=torch.float64)
    weights[10:20] = 2
    twice = torch.arange(60).repeat_interleave(weights.long())
    settings: dict[str, Any] = {"epochs": 3, "batch": 20}
    weighted = trainer_for("dsui", whole, weights, **settings)
    repeated = trainer_for(
        "dsui", MemorySet("digits", whole.classes, whole.images[twice], whole.labels[twice]), **settings
    )
    for each in (weighted, repeated):
        train(each)
    for ours, theirs in zip(weighted.method.state_dict().values(), repeated.method.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_classifier_takes_weights_and_a_weight_of_zero_is_no_image() -> None:
    whole = images("train", 0)
    pixels, labels = whole.images[:80].numpy(), whole.labels[:80].numpy()
    settings = {"epochs": 2, "batch": 16}

    def fitted(chosen: Any, weights: Any, **more: Any) -> list[Tensor]:
        model = UncertaintyClassifier(
            "small", recipe="demo", settings={**settings, **more}, calibration=0.1, device="cpu"
        )
        model.fit(pixels[chosen], labels[chosen], sample_weight=weights)
        return list(model.predictor_.model.method.state_dict().values())

    kept = np.arange(80) % 8 > 0
    for ours, theirs in zip(fitted(slice(None), kept.astype(float)), fitted(kept, None), strict=True):
        assert ours.shape == theirs.shape
    ones, plain = fitted(slice(None), np.ones(80)), fitted(slice(None), None)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(ones, plain, strict=True))
    longer = fitted(slice(None), np.full(80, 1.5), balance="sampling")
    assert not all(torch.equal(ours, theirs) for ours, theirs in zip(longer, plain, strict=True))
    with pytest.raises(ValueError, match="give one number for each image"):
        fitted(slice(None), np.ones(79))
