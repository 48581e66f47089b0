"""GDOSR: its transformations, its loss, who moves in which turn, and what it reaches on 256 digits."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import Tensor

from dsui.backbones.own import as_backbone
from dsui.backbones.registry import own_backbone
from dsui.backbones.small import SmallNet
from dsui.data.noise import uniform_noise
from dsui.errors import DsuiError
from dsui.methods.gdosr import ClassifierOutput, GenerativeDiscriminative, symmetries, transform_at_random
from dsui.methods.registry import build
from dsui.recipe import Recipe
from dsui.runs.recipe_file import load_recipe
from tests.support.on_digits import (
    NOISE_IMAGES,
    TrainedRun,
    accuracy,
    changed_by_update,
    images,
    means,
    noise,
    predict,
    three_seeds,
    train,
    trainer_for,
)


def made(
    backbone: str = "small", channels: int = 1, recipe: Recipe | None = None, **options: object
) -> GenerativeDiscriminative:
    torch.manual_seed(0)
    method = build("gdosr", backbone, channels, 10, recipe or load_recipe("demo", "digits"), options)
    assert isinstance(method, GenerativeDiscriminative)
    return method


def answers(method: GenerativeDiscriminative, batch: Tensor) -> ClassifierOutput:
    found = method(batch)
    assert isinstance(found, ClassifierOutput)
    return found


def pixels(count: int = 8, channels: int = 1, height: int = 8, width: int = 8) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(1)) * 2 - 1


def turned(image: Tensor, k: int, quarters: int = 4) -> Tensor:
    """T_k of one image [..., H, W], by numpy; `quarters` is how many turns there are on each side."""
    side = np.flip(image.numpy(), -1) if k >= quarters else image.numpy()
    return torch.from_numpy(np.rot90(side, k % quarters * (4 // quarters), (-2, -1)).copy())


def test_transformations_are_the_eight_symmetries_of_a_square_and_without_mirrors_its_four_rotations() -> None:
    square = np.arange(9.0).reshape(3, 3)
    transposed = [square, square.T]
    group = {each[::down, ::right].tobytes() for each in transposed for down in (1, -1) for right in (1, -1)}
    every = symmetries(torch.from_numpy(square), mirrors=True)
    assert len(every) == len(group) == 8
    assert {each.numpy().tobytes() for each in every} == group
    assert torch.equal(every[0], torch.from_numpy(square))
    rotations = symmetries(torch.from_numpy(square), mirrors=False)
    assert [each.numpy().tobytes() for each in rotations] == [np.rot90(square, k).tobytes() for k in range(4)]


def test_the_classifier_sees_image_and_reconstruction_and_then_both_turned_alike() -> None:
    recipe = load_recipe("demo", "digits", {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.5, 1.0]})
    method, batch, seen = made(channels=3, recipe=recipe), pixels(32, 3), list[Tensor]()
    method.network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    drawn = answers(method, batch).drawn
    pairs, transformed = seen[0].chunk(2)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (recipe.mean, recipe.std))
    enlarged = (batch * std + mean).repeat_interleave(4, 2).repeat_interleave(4, 3)
    with torch.no_grad():
        reconstructed = method.auto_encoder(enlarged).unflatten(3, (8, 4)).unflatten(2, (8, 4)).mean((3, 5))
    assert torch.equal(pairs[:, :3], batch)
    torch.testing.assert_close(pairs[:, 3:], (reconstructed - mean) / std, rtol=1e-4, atol=1e-5)  # float32 means
    expected = torch.stack([turned(pair, k) for pair, k in zip(pairs, drawn.tolist(), strict=True)])
    assert torch.equal(transformed, expected)
    assert len(drawn.unique()) == 8


def test_transformations_are_drawn_evenly_and_for_every_image() -> None:
    torch.manual_seed(0)
    for mirrors, count in ((True, 8), (False, 4)):
        _, drawn = transform_at_random(torch.rand(8000, 1, 2, 2), mirrors)
        shares = drawn.bincount().double() / 8000
        assert shares.shape == (count,)
        assert (shares - 1 / count).abs().max() < 0.025  # 5 times sqrt(0.25 * 0.75 / 8000) is 0.024


@pytest.mark.parametrize(("height", "width"), [(6, 10), (10, 6)])
def test_images_that_are_not_square_turn_by_halves(height: int, width: int) -> None:
    method, batch, seen = made(), pixels(32, 1, height, width), list[Tensor]()
    method.network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    found = answers(method, batch)
    pairs, transformed = seen[0].chunk(2)
    expected = [turned(pair, k, quarters=2) for pair, k in zip(pairs, found.drawn.tolist(), strict=True)]
    assert torch.equal(transformed, torch.stack(expected))
    assert found.drawn.unique().tolist() == [0, 1, 2, 3]
    method.loss(found, torch.arange(32) % 10).backward()
    with torch.no_grad():
        outputs = method.eval().predict(batch)
    assert outputs.logits.shape == (32, 10)
    assert outputs.own["reconstruction"].shape == (32,)


def test_mirrors_are_not_asked_for_where_the_recipe_mirrors_training_images() -> None:
    method = made(recipe=load_recipe("demo", "digits", {"flip": True}))
    found = answers(method, pixels(64))
    assert found.transformations.shape == (64, 4)
    assert found.drawn.unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("weight", [0.2, 0.0, 0.7])
def test_loss_weighs_the_cross_entropies_of_class_and_transformation(weight: float) -> None:
    method, generator = made(transform_weight=weight), torch.Generator().manual_seed(0)
    classes, transformations = (5 * torch.randn(16, count, generator=generator) for count in (10, 8))
    labels, drawn = (torch.randint(count, (16,), generator=generator) for count in (10, 8))
    value = method.loss(ClassifierOutput(classes, transformations, drawn), labels)
    of_class, of_transformation = (
        -log_softmax(logits.double().numpy(), 1)[np.arange(16), targets].mean()
        for logits, targets in ((classes, labels.numpy()), (transformations, drawn.numpy()))
    )
    assert value.item() == pytest.approx((1 - weight) * of_class + weight * of_transformation, rel=1e-6)  # float32
    terms = {"cross_entropy": of_class, "transformation": of_transformation}
    assert {name: term.item() for name, term in method.terms.items()} == pytest.approx(terms, rel=1e-6)
    assert torch.equal(method.logits(ClassifierOutput(classes, transformations, drawn)), classes)


def test_reconstruction_is_the_mean_squared_error_of_pixels_in_training_and_in_prediction() -> None:
    recipe = load_recipe("demo", "digits", {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.5, 1.0]})
    method, batch = made(channels=3, recipe=recipe).eval(), pixels(8, 3, 32, 32)
    method.turn = 1
    value = method.loss(method(batch), torch.arange(8))
    with torch.no_grad():
        found = method.predict(batch).own["reconstruction"]
        seen = batch.double().numpy() * np.array(recipe.std)[:, None, None] + np.array(recipe.mean)[:, None, None]
        errors = (seen - method.auto_encoder(torch.from_numpy(seen).float()).double().numpy()) ** 2
    np.testing.assert_allclose(found.numpy(), errors.mean((1, 2, 3)), rtol=1e-5)  # float32 pixels
    assert found.dtype == torch.float64
    assert value.item() == pytest.approx(errors.mean(), rel=1e-5)
    assert method.terms["reconstruction"].item() == value.item()


@pytest.mark.parametrize("backbone", ["small", "resnet18"])
def test_each_turn_moves_its_own_part_and_nothing_else(backbone: str) -> None:
    method = made(backbone, channels=3, recipe=load_recipe("demo", "digits", {"neck": True}))
    batch = pixels(4, 3)
    of_auto_encoder = {name for name in method.state_dict() if name.startswith("auto_encoder.")}
    assert changed_by_update(method, 1, batch) == of_auto_encoder
    assert all(parameter.grad is None for parameter in method.turns()[0].parameters)
    first = changed_by_update(method, 0, batch)
    assert first == set(method.state_dict()) - of_auto_encoder
    assert any("running_mean" in name for name in first)
    assert all(parameter.grad is None for parameter in method.turns()[1].parameters)


def test_what_the_auto_encoder_says_changes_the_prediction_and_shows_an_attack_its_gradient() -> None:
    method, batch = made().eval(), pixels()
    before = method.predict(batch)
    last = list(method.auto_encoder.parameters())[-1]
    (gradient,) = torch.autograd.grad(before.logits.square().sum(), last)
    assert gradient.abs().sum() > 0
    with torch.no_grad():
        last.add_(1)  # brighter
        after = method.predict(batch)
    assert (before.logits - after.logits).abs().amax(1).min() > 1e-3


def test_the_last_layer_gives_the_logits() -> None:
    with torch.no_grad():
        found = made().eval().predict(pixels())
    assert found.weight is not None
    assert found.bias is not None
    torch.testing.assert_close(found.features @ found.weight.T + found.bias, found.logits)


EPOCHS, BATCH = 14, 32
"""Four epochs of them are for g."""
PART = slice(None, None, 5)
"""Of the test digits and of the noise, because g takes its time on a CPU."""


def reached(seed: int) -> TrainedRun:
    trainer, test = trainer_for("gdosr", seed, epochs=EPOCHS, batch=BATCH), images("test", seed)
    train(trainer)
    foreign = (uniform_noise(NOISE_IMAGES, (1, 8, 8), 0)[PART] * 255).round().to(torch.uint8)
    own = predict(trainer, test.images[PART], test.labels[PART])
    return TrainedRun(trainer, own, predict(trainer, foreign))


@torch.no_grad()
def transformation_accuracy(run: TrainedRun) -> float:
    assert isinstance(run.trainer.method, GenerativeDiscriminative)
    torch.manual_seed(0)
    batch = run.trainer.transform.plain(images("test", run.trainer.config.seed).images[PART])
    found = answers(run.trainer.method, batch)
    return found.transformations.argmax(1).eq(found.drawn).double().mean().item()


def error_beside_the_mean_image(run: TrainedRun) -> float:
    """Of g on unseen digits, as a share of the error of the training digits' mean."""
    known, unseen = (images(part, run.trainer.config.seed).images.double() / 255 for part in ("train", "test"))
    return (run.test.own["reconstruction"].mean() / (unseen[PART] - known.mean(0)).square().mean()).item()


def test_reaches_on_256_digits_over_three_seeds() -> None:
    runs = [reached(seed) for seed in range(3)]
    right = mean(map(accuracy, runs))
    assert right > 0.90  # 93.4 when written
    assert right > means(three_seeds("msp", epochs=EPOCHS, batch=BATCH))[0] - 0.04  # 95.2
    assert mean(map(transformation_accuracy, runs)) > 0.60  # 73.1; by chance 12.5
    assert mean(map(error_beside_the_mean_image, runs)) < 0.55  # 40.8
    assert mean(noise(run, "max_logit") for run in runs) > 0.92  # 94.5; msp 95.3
    assert all(noise(run, "reconstruction") > 0.995 for run in runs)  # 100.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"code": 0}, "code must be between 1 and 65,536, got 0"),
        ({"transform_weight": -0.1}, "transform_weight must be at least 0 and below 1, got -0.1"),
        ({"transform_weight": 1.0}, "transform_weight must be at least 0 and below 1, got 1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build("gdosr", "small", 1, 10, load_recipe("demo", "digits"), options)


def test_a_module_of_the_users_own_is_refused_because_it_takes_one_image() -> None:
    with (
        own_backbone(as_backbone(SmallNet(), (1, 8, 8)), "Net") as name,
        pytest.raises(
            DsuiError, match="gdosr cannot be built on own:Net; choose --backbone small or resnet18 or vgg16"
        ),
    ):
        build("gdosr", name, 1, 10, load_recipe("demo", "digits"))
