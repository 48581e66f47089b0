"""Copies of a batch behind its own images: exact quarter turns, mixtures of two images, and a loss for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import beta, kstest
from torch import Tensor

from dsui.data.augment import drawn_quarters
from dsui.errors import DsuiError
from dsui.methods.method import Method
from dsui.methods.registry import build
from dsui.runs.recipe_file import load_recipe
from dsui.training.copies import Copies
from dsui.training.step import LossModule
from dsui.training.trainer import Trainer
from tests.support.on_digits import CPU, trainer_for
from tests.support.plain_loss import FIRST_STEP

BATCH, CLASSES = 12, 10
LABELS = torch.arange(BATCH) % CLASSES
ALL: dict[str, Any] = {"doubles": "turns", "doubles_weight": 0.5, "regmixup": 0.25}


def pixels(side: int = 8) -> Tensor:
    return torch.rand(BATCH, 1, side, 8, generator=torch.Generator().manual_seed(1))


def made(name: str = "msp", steps: int = 100, seed: int = 0, **settings: Any) -> tuple[Method, Copies]:
    torch.manual_seed(0)
    recipe = load_recipe("demo", "digits", settings)
    method = build(name, "small", 1, CLASSES, recipe)
    method.set_class_counts(torch.full((CLASSES,), 10))
    return method, Copies(method, recipe, CLASSES, seed, steps, CPU)


def test_behind_the_images_stands_each_turned_by_its_draw_and_labelled_so() -> None:
    _, copies = made(doubles="turns")
    images, indices = pixels(), torch.arange(BATCH) + 40
    inputs, labels = copies.with_turned(images, LABELS, indices, 3)
    assert torch.equal(inputs[:BATCH], images)
    assert torch.equal(labels[:BATCH], LABELS)
    drawn = drawn_quarters(0, indices, 3)
    assert set(drawn.tolist()) == {1, 2, 3}
    for index, quarter in enumerate(drawn.tolist()):
        assert torch.equal(inputs[BATCH + index], torch.rot90(images[index], quarter, (1, 2)))
        assert labels[BATCH + index] == LABELS[index] + quarter * CLASSES


def test_three_copies_are_all_turns_of_every_image() -> None:
    _, copies = made(doubles="turns", doubles_copies=3)
    images = pixels()
    inputs, labels = copies.with_turned(images, LABELS, torch.arange(BATCH), 0)
    for quarter in range(4):
        part = slice(quarter * BATCH, (quarter + 1) * BATCH)
        assert torch.equal(inputs[part], torch.rot90(images, quarter, (2, 3)))
        assert torch.equal(labels[part], LABELS + quarter * CLASSES)


def test_without_copies_a_batch_stays_the_same_object() -> None:
    _, copies = made()
    images = pixels()
    inputs, labels = copies.with_turned(images, LABELS, torch.arange(BATCH), 0)
    assert inputs is images
    assert labels is LABELS
    assert copies.with_mixed(inputs, BATCH, 0) is images


def test_the_mixed_copy_is_of_neighbours_in_the_batch_and_its_share_is_one_number_a_step() -> None:
    _, copies = made(regmixup=0.5, steps=2000)
    images = pixels()
    share = beta_shares(copies)
    for step in (0, 7):
        mixed = copies.with_mixed(images, BATCH, step)[BATCH:]
        for index in range(BATCH):
            wanted = share[step] * images[index] + (1 - share[step]) * images[index - 1]
            torch.testing.assert_close(mixed[index], wanted)
    assert kstest(share.numpy(), beta(10, 10).cdf).pvalue > 1e-3  # 2,000 draws, fixed by the seed
    assert not torch.equal(share, beta_shares(made(regmixup=0.5, steps=2000, seed=1)[1]))


def beta_shares(copies: Copies) -> Tensor:
    assert copies.shares is not None
    return copies.shares


def test_the_loss_is_the_sum_over_the_images_and_their_copies() -> None:
    method, copies = made(**ALL)
    images = pixels()
    inputs, labels = copies.with_turned(images, LABELS, torch.arange(BATCH), 0)
    output = method(copies.with_mixed(inputs, BATCH, 0))
    found, own = copies.loss(method, output, labels, FIRST_STEP)
    logits, share = output.double(), beta_shares(copies)[0].double()
    upright, turned, mixed = logits.split(BATCH)
    expected = (
        F.cross_entropy(upright, LABELS)
        + 0.5 * F.cross_entropy(turned, labels[BATCH:])
        + 0.25 * share * F.cross_entropy(mixed, LABELS)
        + 0.25 * (1 - share) * F.cross_entropy(mixed, LABELS.roll(1))
    )
    assert own == BATCH
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)  # float32 against float64
    assert {"cross_entropy", "turned", "mixed"} <= method.terms.keys()


def test_three_copies_weigh_as_three() -> None:
    method, copies = made(doubles="turns", doubles_copies=3)
    inputs, labels = copies.with_turned(pixels(), LABELS, torch.arange(BATCH), 0)
    output = method(inputs)
    found, _ = copies.loss(method, output, labels, FIRST_STEP)
    parts = [F.cross_entropy(*each) for each in zip(output.split(BATCH), labels.split(BATCH), strict=True)]
    torch.testing.assert_close(found, torch.stack(parts).sum())


@pytest.mark.parametrize("name", ["dsui", "msp", "logitnorm"])
def test_every_gradient_is_that_of_the_sum_of_separate_losses(name: str) -> None:
    """In evaluation mode, where the parts of a batch do not meet in a batch norm."""
    method, copies = made(name, **ALL)
    method.eval()
    images, step = pixels(), FIRST_STEP
    inputs, labels = copies.with_turned(images, LABELS, torch.arange(BATCH), 0)
    inputs = copies.with_mixed(inputs, BATCH, 0)
    copies.loss(method, method(inputs), labels, step)[0].backward()
    together = gradients(method)
    share, mixed = beta_shares(copies)[0], inputs[2 * BATCH :]
    for weight, part, targets in (
        (1.0, images, LABELS),
        (0.5, inputs[BATCH : 2 * BATCH], labels[BATCH:]),
        (0.25 * share, mixed, LABELS),
        (0.25 * (1 - share), mixed, LABELS.roll(1)),
    ):
        (weight * method.loss(method(part), targets)).backward()
    for name_, gradient in gradients(method).items():
        torch.testing.assert_close(gradient, together[name_], rtol=1e-3, atol=1e-5, msg=name_)  # float32 sums


def gradients(method: Method) -> dict[str, Tensor]:
    found = {name: each.grad.clone() for name, each in method.named_parameters() if each.grad is not None}
    method.zero_grad()
    return found


@pytest.mark.parametrize("name", ["dsui", "msp", "logitnorm", "rotpred"])
def test_a_step_with_copies_is_one_graph_that_never_asks_for_a_value(name: str) -> None:
    """DS-UI's densities stay outside compiled graphs by design (`dsui.fused`)."""
    settings = {"regmixup": 0.25} if name == "rotpred" else ALL
    method, copies = made(name, **settings)
    inputs, labels = copies.with_turned(pixels(), LABELS, torch.arange(BATCH), 0)
    module = LossModule(method.eval(), copies, torch.autocast("cpu", enabled=False))
    batch = copies.with_mixed(inputs, BATCH, 0)
    torch.compiler.reset()  # other tests compile the same function, which may be done only so often
    eager, _ = module(batch, labels, FIRST_STEP)
    compiled, logits = torch.compile(module, fullgraph=name != "dsui", backend="eager")(batch, labels, FIRST_STEP)
    torch.testing.assert_close(compiled, eager)
    assert logits.shape == (BATCH, CLASSES)


STATEFUL: dict[str, Any] = {**ALL, "epochs": 3, "sam": 0.05, "average": "swa", "swa_start": 0.3, "density_warm_up": 1}


def test_a_resumed_run_reaches_the_same_bits() -> None:
    whole, first, second = (trainer_for("dsui", **STATEFUL) for _ in range(3))
    steps_of(whole, 0, 3)
    steps_of(first, 0, 1)
    taken = first.epoch_steps(1, 0)
    for _ in range(3):
        next(taken)
    second.load(first.state())
    for _ in second.epoch_steps(1, 3):
        pass
    second.end_epoch(1)
    steps_of(second, 2, 3)
    whole.finish()
    second.finish()
    ours, theirs = second.method.state_dict(), whole.method.state_dict()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def steps_of(trainer: Trainer, first: int, end: int) -> None:
    for epoch in range(first, end):
        for _ in trainer.epoch_steps(epoch, 0):
            pass
        trainer.end_epoch(epoch)


def test_statistics_are_estimated_again_over_images_and_copies() -> None:
    trainer = trainer_for("dsui", **STATEFUL)
    (batch, *_), steps = trainer._inputs(3), trainer.steps_per_epoch
    assert len(batch) == 3 * trainer.recipe.batch
    assert len(list(trainer._inputs(3))) == steps


def test_images_that_are_not_square_and_methods_that_cannot_mix_are_told() -> None:
    _, copies = made(doubles="turns")
    with pytest.raises(DsuiError, match=r"images of 6 x 8 pixels cannot be turned by 90 degrees; make them square, or"):
        copies.with_turned(pixels(6), LABELS, torch.arange(BATCH), 0)
    with pytest.raises(DsuiError, match=r"RegMixup needs a method whose loss is a mean over images: dsui, msp, "):
        made("sde-net", regmixup=0.5)
