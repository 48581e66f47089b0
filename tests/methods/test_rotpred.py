"""RotPred: one network for classes and turns, and a confidence from four passes."""

from __future__ import annotations

import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import entropy
from torch import Tensor

from dsui.methods.registry import build
from dsui.methods.rotpred import RotPred
from dsui.runs.recipe_file import load_recipe
from dsui.training.copies import Copies
from tests.support.on_digits import CPU, means, noise, three_seeds

RECIPE = load_recipe("demo", "digits")


def made() -> RotPred:
    torch.manual_seed(0)
    method = build("rotpred", "small", 1, 5, RECIPE)
    assert isinstance(method, RotPred)
    return method.eval()


def pixels(count: int = 6) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1


@torch.no_grad()
def test_the_loss_is_that_of_the_classes_and_a_quarter_of_each_turn() -> None:
    method, images, labels = made(), pixels(), torch.tensor([0, 1, 2, 3, 4, 0])
    copies = Copies(method, RECIPE, 5, seed=0, steps=1, device=CPU)
    inputs, joint = copies.with_turned(images, labels, torch.arange(6), 0)
    found, own = copies.loss(method, method(inputs), joint, torch.zeros((), dtype=torch.int64))
    features = [method.network(images.rot90(turn, (2, 3))) for turn in range(4)]
    classes = log_softmax(method.output(features[0]).double().numpy(), axis=1)[range(6), labels.tolist()]
    turns = [log_softmax(method.turn_output(each).double().numpy(), axis=1)[:, r] for r, each in enumerate(features)]
    expected = -classes.mean() - sum(each.mean() for each in turns) / 4
    assert own == 6
    assert found.item() == pytest.approx(expected, rel=1e-5)  # float32 against float64


@torch.no_grad()
def test_its_own_score_is_the_negated_confidence_of_four_passes() -> None:
    method, images = made(), pixels()
    outputs = method.predict(images)
    p = outputs.logits.double().softmax(1)
    far_from_flat = entropy(torch.full_like(p, 0.2).numpy(), p.numpy(), axis=1)
    surprise = 0.0
    for turn in range(4):
        logits = method.turn_output(method.network(torch.rot90(images, turn, (2, 3)))).double()
        surprise = surprise - log_softmax(logits.numpy(), axis=1)[:, turn] / 4
    torch.testing.assert_close(
        outputs.own["rotpred"], torch.as_tensor(surprise - far_from_flat), rtol=1e-5, atol=1e-6
    )  # float32 features
    assert torch.equal(outputs.logits, method.output(method.network(images)))
    assert method.passes == 4


def test_reaches_on_256_digits_over_three_seeds() -> None:
    runs = three_seeds("rotpred")
    accuracy, errors, _ = means(runs)
    assert accuracy > 0.94
    assert errors > 0.93
    assert all(noise(run, "rotpred") > 0.9 for run in runs)
