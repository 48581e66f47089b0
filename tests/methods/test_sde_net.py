"""SDE-Net: its equation, who moves in which turn, and what it reaches on 256 digits."""

from __future__ import annotations

import math
from statistics import mean

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.backbones.sde import Pooling, TimedConvolution
from dsui.errors import DsuiError
from dsui.methods.registry import build
from dsui.methods.sde_net import SDENet, euler_maruyama
from dsui.outputs import Outputs
from dsui.recipe import Recipe
from dsui.runs.recipe_file import load_recipe
from dsui.training.optimizer import make_optimizer, set_rate
from dsui.training.trainer import Trainer
from tests.support.on_digits import (
    CPU,
    TrainedRun,
    changed_by_update,
    images,
    means,
    noise,
    predict,
    three_seeds,
    train,
    trainer_for,
)


def made(backbone: str = "small", channels: int = 1, recipe: Recipe | None = None, **options: object) -> SDENet:
    torch.manual_seed(0)
    method = build("sde-net", backbone, channels, 10, recipe or load_recipe("demo", "digits"), options)
    assert isinstance(method, SDENet)
    torch.nn.init.normal_(method.output.weight)  # so that even an untrained net has opinions
    return method


@torch.no_grad()
def outputs(method: SDENet, batch: Tensor, seed: int = 0) -> Outputs:
    torch.manual_seed(seed)
    return method.eval().predict(batch)


def pixels(count: int = 8, channels: int = 1, side: int = 8) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.mark.parametrize("steps", [1, 4, 6])
def test_without_noise_it_is_eulers_method_for_the_drift(steps: int) -> None:
    h = torch.linspace(-1, 1, 24, dtype=torch.float64).view(2, 3, 2, 2)
    found = euler_maruyama(lambda x, t: -0.1 * x + t, h, torch.zeros(2), steps)
    dt, decay = 6 / steps, 1 - 0.1 * 6 / steps  # h_S = decay^S h_0 + sum_k decay^(S - 1 - k) (k dt) dt
    expected = decay**steps * h + sum(decay ** (steps - 1 - k) * k * dt * dt for k in range(steps))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)  # float64 in another order


def test_noise_of_a_step_has_the_deviation_sigma_g_sqrt_dt_of_its_own_image() -> None:
    torch.manual_seed(0)
    scale, steps, seen = torch.tensor([0.0, 0.5, 50.0]), 4, list[Tensor]()

    def no_drift(h: Tensor, t: float) -> Tensor:
        seen.append(h)
        return torch.zeros_like(h) * t

    last = euler_maruyama(no_drift, torch.zeros(3, 40_000), scale, steps)
    increments = torch.stack([*seen, last]).diff(dim=0)  # [steps, 3, values]
    expected = (scale * math.sqrt(6 / steps)).expand(steps, 3)
    torch.testing.assert_close(increments.std(2), expected, rtol=0.02, atol=0)  # 1 / sqrt(80 000) is 0.0035; 5 of them
    assert increments[:, 1].corrcoef().sub(torch.eye(steps)).abs().max() < 0.025  # fresh noise, 5 / sqrt(40 000)
    assert increments.diff(dim=2)[:, 1:].abs().gt(0).double().mean() > 0.99  # and for every value its own


def test_time_is_one_more_channel_of_a_convolution() -> None:
    torch.manual_seed(0)
    layer, x, t = TimedConvolution(8), torch.randn(3, 8, 5, 4), 2.5
    weight = torch.cat([layer.time.weight, layer.space.weight], 1)
    expected = F.conv2d(torch.cat([torch.full((3, 1, 5, 4), t), x], 1), weight, layer.space.bias, padding=1)
    torch.testing.assert_close(layer(x, t), expected, rtol=1e-5, atol=1e-5)  # float32, summed in another order


def test_without_noise_every_draw_is_the_same_ode() -> None:
    method, batch = made(test_sigma=0.0, samples=3, steps=5), pixels()
    found = outputs(method, batch)
    with torch.no_grad():
        h = method.stem(batch)
        for k in range(5):
            h = h + 1.2 * method.drift(h, 1.2 * k)
        z = method.pooling(h)
        logits = F.linear(z, method.output.weight, method.output.bias)
    assert found.samples is not None
    torch.testing.assert_close(found.features, z, rtol=1e-5, atol=1e-5)  # float32 in another order
    torch.testing.assert_close(found.logits, logits.double().log_softmax(1), rtol=1e-4, atol=1e-4)  # and through W
    assert all(torch.equal(found.samples[:, 0], found.samples[:, draw]) for draw in range(3))
    assert torch.equal(found.logits, outputs(method, batch, seed=5).logits)
    torch.testing.assert_close(found.own["mutual_information"], torch.zeros(8).double(), rtol=0, atol=1e-12)  # rounding


def test_g_is_asked_once_and_of_h_0_whatever_the_drift_does() -> None:
    method, batch, asked = made(), pixels(), list[Tensor]()
    method.diffusion.register_forward_pre_hook(lambda _, given: asked.append(given[0]))
    before = outputs(method, batch)
    assert len(asked) == 1
    assert method.passes == 10
    assert torch.equal(asked[0], method.stem(batch))
    with torch.no_grad():
        method.drift.last.weight.mul_(100)
    after = outputs(method, batch)
    assert torch.equal(before.own["diffusion"], after.own["diffusion"])
    assert not torch.equal(before.logits, after.logits)


def test_noise_is_g_of_each_image_in_training_and_50_times_that_in_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch, given = made(samples=2), pixels(), list[Tensor]()

    def recorded(_: object, h: Tensor, noise: Tensor, steps: int) -> Tensor:
        assert steps == 6
        given.append(noise)
        return h

    monkeypatch.setattr("dsui.methods.sde_net.euler_maruyama", recorded)
    torch.nn.init.normal_(list(method.diffusion.parameters())[-2])  # the weights of its last layer, so that g varies
    method(batch)
    g = outputs(method, batch).own["diffusion"]
    assert g.std() > 0.05
    for scale, sigma in zip(given, (1, 50, 50), strict=True):
        torch.testing.assert_close(scale.double(), sigma * g, rtol=1e-5, atol=0)  # float32


def test_prediction_is_the_mean_of_the_draws_and_its_information_what_they_disagree_on() -> None:
    method = made(samples=7)
    found = outputs(method, pixels())
    assert found.samples is not None
    assert found.samples.shape == (8, 7, 10)
    p = found.samples.exp()
    torch.testing.assert_close(found.probabilities, p.mean(1).double(), rtol=1e-5, atol=1e-6)  # samples in float32
    entropies = torch.distributions.Categorical(probs=p).entropy().double()
    entropy = torch.distributions.Categorical(probs=found.probabilities).entropy()
    information = found.own["mutual_information"]
    torch.testing.assert_close(information, entropy - entropies.mean(1), rtol=0, atol=1e-5)  # of float32 samples
    assert information.min() > 1e-3
    own_logits = F.linear(found.features, method.output.weight, method.output.bias).double()
    centred = [value - value.mean(1, keepdim=True) for value in (own_logits, found.samples.double().mean(1))]
    torch.testing.assert_close(*centred, rtol=1e-4, atol=1e-4)  # float32 products; log-softmax only shifts logits


@pytest.mark.parametrize("scale", [10.0, 1000.0])
def test_what_is_drowned_is_pooled_to_the_same_features_however_strong_the_noise(scale: float) -> None:
    """ReLU of N(0, 1) has the mean 1 / sqrt(2 pi) = 0.399 and the variance 0.341. The norm over two channels takes half
    of what x and x^2 explain of it, 1/4 and 0.080. The mean over 256 positions leaves sqrt(0.176 / 256) = 0.0262."""
    pooled = Pooling(64)(scale * torch.randn(200, 64, 16, 16, generator=torch.Generator().manual_seed(0)))
    assert pooled.mean().item() == pytest.approx(0.399, abs=0.002)
    assert pooled.std().item() == pytest.approx(0.0262, rel=0.05)  # 12,800 values: 0.6 %


@pytest.mark.parametrize("backbone", ["small", "resnet18"])
def test_each_turn_moves_its_own_part_and_nothing_else(backbone: str) -> None:
    method = made(backbone, channels=3, recipe=load_recipe("demo", "digits", {"neck": True}))
    batch = pixels(4, 3, 16)
    of_diffusion = {name for name in method.state_dict() if name.startswith("diffusion.")}
    assert changed_by_update(method, 1, batch) == of_diffusion
    assert all(parameter.grad is None for parameter in method.turns()[0].parameters)
    first = changed_by_update(method, 0, batch)
    assert first == set(method.state_dict()) - of_diffusion
    assert any("running_mean" in name for name in first)


def test_noisy_images_do_not_reach_clean_ones_in_the_second_turn() -> None:
    method, batch = made("resnet18", channels=3), pixels(4, 3, 16)
    method(batch)  # moves the running statistics from where they start
    method.turn = 1
    inside, outside = method(batch).detach().chunk(2)
    assert method.stem.training
    with torch.no_grad():
        clean = method.eval().diffusion(method.stem(batch))
    torch.testing.assert_close(inside, clean, rtol=1e-4, atol=1e-6)  # float32, other block sizes
    assert (inside - outside).abs().min() > 1e-4


def test_foreign_images_have_noise_of_deviation_2_in_pixels_shared_by_channels() -> None:
    recipe = load_recipe("demo", "digits", {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.5, 1.0]})
    method, batch, seen = made(channels=3, recipe=recipe), pixels(64, 3, 16), list[Tensor]()
    method.stem.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    method.turn = 1
    method(batch)
    assert torch.equal(seen[0][:64], batch)
    added = (seen[0][64:] - batch) * torch.tensor(recipe.std).view(3, 1, 1)
    torch.testing.assert_close(added, added[:, :1].expand_as(added), rtol=1e-4, atol=1e-4)  # float32
    assert added.std().item() == pytest.approx(2, rel=0.03)  # 16 384 values: 1 / sqrt(32 768) is 0.0055; 5 of them


def test_second_turn_is_binary_cross_entropy() -> None:
    method = made()
    method.turn = 1
    odds = torch.linspace(-30, 30, 12)
    targets = torch.arange(12) >= 6
    expected = 2 * F.binary_cross_entropy(odds.double().sigmoid(), targets.double())
    assert method.loss(odds, torch.arange(6)).item() == pytest.approx(expected.item(), rel=1e-6)  # float32


def test_diffusion_moves_at_the_published_twentieth_under_sgd_and_at_the_full_rate_under_adam() -> None:
    rates = {name: made(recipe=load_recipe("demo", "digits", {"optimizer": name})).turns() for name in ("sgd", "adam")}
    assert {name: [turn.rate for turn in turns] for name, turns in rates.items()} == {"sgd": [1, 0.05], "adam": [1, 1]}


def test_resumed_training_reaches_the_same_bits_with_both_optimizers() -> None:
    def epoch(trainer: Trainer, number: int) -> None:
        for _ in trainer.epoch_steps(number, 0):
            pass
        trainer.end_epoch(number)

    whole, first, second = (trainer_for("sde-net", epochs=2) for _ in range(3))
    epoch(whole, 0)
    epoch(whole, 1)
    epoch(first, 0)
    second.load(first.state())
    epoch(second, 1)
    ours, theirs = whole.state()["model"], second.state()["model"]
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    assert len(whole.optimizers) == 2


def test_an_image_does_not_see_its_neighbours_in_the_batch() -> None:
    trainer = trainer_for("sde-net", epochs=2, test_sigma=0.0, samples=1)
    train(trainer)
    batch = images("test", 0).images[:64]
    whole, half = predict(trainer, batch), predict(trainer, batch[:32])
    for name in ("diffusion", "mutual_information"):
        torch.testing.assert_close(whole.own[name][:32], half.own[name], rtol=1e-4, atol=1e-6)  # other block sizes
    torch.testing.assert_close(whole.logits[:32], half.logits, rtol=1e-4, atol=1e-4)  # likewise


def test_reaches_on_256_digits_over_three_seeds() -> None:
    """g tells noise best, and takes a part of the unseen digits for it: their predictions drown."""
    runs = three_seeds("sde-net", epochs=24)
    least = (0.82, 0.87, 0.93)  # 85.5, 90.6, 96.1 when written
    assert all(found > bar for found, bar in zip(means(runs), least, strict=True))
    assert mean(noise(run, "diffusion") for run in runs) > 0.99  # 99.8 when written
    for run in runs:  # every draw is flat, where a prediction drowns, because the last layer is linear
        assert run.noise.samples is not None
        assert run.noise.samples.exp().amax(2).mean() < 0.3  # 0.17 when written; 0.9 with the three layers of the neck
    assert mean(map(accuracy_without_noise, runs)) > 0.90  # 92.5 when written


def accuracy_without_noise(run: TrainedRun) -> float:
    assert isinstance(run.trainer.method, SDENet)
    assert run.test.labels is not None
    run.trainer.method.test_sigma, run.trainer.method.passes = 0.0, 1
    test = images("test", run.trainer.config.seed)
    return predict(run.trainer, test.images).predictions.eq(run.test.labels).double().mean().item()


def test_both_losses_fall_on_resnet18() -> None:
    recipe = load_recipe("paper", "cifar10")
    torch.manual_seed(0)
    method = build("sde-net", "resnet18", 3, 10, recipe)
    optimizers = [make_optimizer(method, turn, recipe, CPU) for turn in method.turns()]
    batch, losses = pixels(4, 3, 16), list[list[float]]()
    for _ in range(6):
        losses.append([])
        for method.turn, optimizer in enumerate(optimizers):
            set_rate(optimizer, torch.tensor(2e-4))
            method.zero_grad()
            loss = method.loss(method(batch), torch.arange(4))
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx([math.log(10), 2 * math.log(2)], abs=0.2)  # both outputs start near zero
    assert losses[-1][0] < 0.8 * losses[0][0]
    assert losses[-1][1] < 0.9 * losses[0][1]


def test_vgg16_is_refused_and_so_are_impossible_options() -> None:
    recipe = load_recipe("demo", "digits")
    with pytest.raises(DsuiError, match="sde-net cannot be built on vgg16; choose --backbone small or resnet18, or a"):
        build("sde-net", "vgg16", 3, 10, recipe)
    for option, sentence in {
        "steps": "steps must be between 1 and 1,000, got -1",
        "samples": "samples must be between 1 and 10,000, got -1",
        "test_sigma": "test_sigma must be finite and not negative, got -1",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            build("sde-net", "small", 1, 10, recipe, {option: -1})
