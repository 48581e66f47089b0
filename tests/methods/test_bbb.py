"""Bayes by Backprop: its divergences and draws against closed forms and integrals, and what it reaches on 256 digits.

The neck is an eighth of its width here, for speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from statistics import mean
from typing import Any, cast, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence

from dsui.backbones.neck import Neck
from dsui.methods.bbb import BayesByBackprop
from dsui.methods.registry import build
from dsui.methods.variational import (
    LOWEST,
    NARROW_STD,
    PRIOR_STD,
    WIDE_STD,
    Prior,
    VariationalLinear,
    deviation,
    gaussian_divergence,
    mixture_divergence,
    mixture_log_prob,
)
from dsui.recipe import RecipeError
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.training.optimizer import parameter_groups
from dsui.training.trainer import Trainer
from tests.support.on_digits import images, means, noise, predict, train, train_new, trainer_for

NECK: dict[str, Any] = {"neck": True, "dropout": 0.2}
PRIORS: tuple[Prior, ...] = get_args(Prior)
POSTERIORS = [(0.0, 0.0067), (0.02, 0.0067), (0.005, 0.002), (0.3, 0.1), (-1.5, 0.5)]
"""(mean, deviation): as at the start, beside the narrow part, in both parts, in the wide part."""


@pytest.fixture(scope="module", autouse=True)
def _narrow_neck() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsui.methods.network.Neck", partial(Neck, width=256))
        yield


def layer(prior: Prior, inputs: int = 6, outputs: int = 4) -> VariationalLinear:
    """With deviations between 0.1 and 1."""
    torch.manual_seed(0)
    made = VariationalLinear(nn.Linear(inputs, outputs), prior)
    for rho in (made.weight_rho, made.bias_rho):
        nn.init.uniform_(rho, -2, 0.5)
    return made


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, (0.935, 0.935, 0.925, 0.86)),  # 94.8, 95.0, 94.5, 88.3 when written
        ({"prior": "mixture"}, (0.935, 0.935, 0.925, 0.89)),  # 94.7, 95.1, 94.3, 90.9
        (NECK, (0.95, 0.945, 0.94, 0.94)),  # 96.1, 96.1, 95.7, 95.8
    ],
)
def test_reaches_on_256_digits_over_three_seeds(settings: dict[str, Any], least: tuple[float, ...]) -> None:
    runs = tuple(train_new("bbb", seed, None, epochs=20, samples=20, **settings) for seed in range(3))
    found = (*means(runs), mean(noise(run, "mutual_information") for run in runs))
    assert all(value > bar for value, bar in zip(found, least, strict=True))


def test_the_divergence_from_the_gaussian_prior_is_the_closed_form_and_zero_from_itself() -> None:
    means, stds = torch.tensor(POSTERIORS, dtype=torch.float64).T
    prior = Normal(torch.zeros_like(stds), torch.full_like(stds, PRIOR_STD))
    expected = kl_divergence(Normal(means, stds), prior).sum()
    torch.testing.assert_close(gaussian_divergence(means, stds), expected, rtol=1e-12, atol=0)  # float64
    itself = gaussian_divergence(torch.zeros(3), torch.full((3,), PRIOR_STD))
    torch.testing.assert_close(itself, torch.zeros(()), rtol=0, atol=1e-12)  # second order in a float32 rounding


def test_the_mixture_is_a_normalised_mixture_of_two_gaussians() -> None:
    mixture = MixtureSameFamily(
        Categorical(torch.tensor([0.5, 0.5])), Normal(torch.zeros(2), torch.tensor([WIDE_STD, NARROW_STD]))
    )
    values = torch.tensor([0.0, 1e-3, -0.01, 0.1, 3.0, 40.0])
    torch.testing.assert_close(mixture_log_prob(values), mixture.log_prob(values), rtol=1e-5, atol=1e-5)  # float32


@pytest.mark.parametrize(("mu", "sigma"), POSTERIORS)
def test_the_divergence_from_the_mixture_and_its_gradient_are_estimated_without_bias(mu: float, sigma: float) -> None:
    def integral(m: Tensor, s: Tensor) -> Tensor:
        """KL(q | P) by the trapezoidal rule over ten deviations."""
        e = torch.linspace(-10, 10, 400_001, dtype=torch.float64)
        weight, w = Normal(0.0, 1.0).log_prob(e).exp(), m + s * e
        return torch.trapezoid(weight * (Normal(m, s).log_prob(w) - mixture_log_prob(w)), e)

    torch.manual_seed(0)
    draws = 400_000
    start = torch.tensor([mu, sigma], dtype=torch.float64)
    exact = start.clone().requires_grad_()
    expected = integral(exact[0], exact[1])
    expected.backward()
    single = start.repeat(draws, 1).requires_grad_()
    estimates = torch.stack([mixture_divergence(single[:, 0] + single[:, 1] * torch.randn(draws), single[:, 1])])
    estimates.sum().backward()
    assert exact.grad is not None
    assert single.grad is not None
    slope_error = single.grad.std(0) / math.sqrt(draws)
    value_error = mixture_log_prob(mu + sigma * torch.randn(draws)).std() / math.sqrt(draws)
    # ten means over all parameters: 5 standard errors, and 1e-6 of the value where there is no noise
    assert abs(estimates.sum() / draws - expected) < 5 * value_error + 1e-6
    assert ((single.grad.mean(0) - exact.grad).abs() < 5 * slope_error + 1e-6 * exact.grad.abs()).all()
    assert expected > 0


@torch.no_grad()
def test_drawn_activations_and_drawn_weights_have_the_same_mean_and_variance() -> None:
    draws = 5000
    local, global_ = layer("gaussian"), layer("mixture")
    x = torch.randn(3, 6)
    (weight, weight_std), (bias, bias_std) = local.posteriors()
    centre, variance = x @ weight.T + bias, x.square() @ weight_std.square().T + bias_std.square()
    for drawn in (local(x.repeat(draws, 1)).view(draws, 3, 4), torch.stack([global_(x) for _ in range(draws)])):
        # means and variances of 5000 Gaussian draws: 5 standard errors
        assert ((drawn.mean(0) - centre).abs() < 5 * (variance / draws).sqrt()).all()
        assert ((drawn.var(0) / variance - 1).abs() < 5 * math.sqrt(2 / draws)).all()


@torch.no_grad()
def test_rows_have_draws_of_their_own_under_the_gaussian_prior_and_one_for_all_under_the_mixture() -> None:
    x = torch.randn(1, 6).expand(2, 6)
    own, shared = layer("gaussian")(x), layer("mixture")(x)
    assert (own[0] != own[1]).all()
    torch.testing.assert_close(shared[0], shared[1])  # rows of one product


@pytest.mark.parametrize("prior", PRIORS)
def test_a_layer_in_evaluation_mode_has_the_mean_weights(prior: Prior) -> None:
    plain = nn.Linear(6, 4)
    x = torch.randn(5, 6)
    assert torch.equal(VariationalLinear(plain, prior).eval()(x), plain(x))


@pytest.mark.parametrize("prior", PRIORS)
def test_deviations_stay_positive_and_gradients_finite_however_small_rho_is(prior: Prior) -> None:
    tiny = layer(prior)
    with torch.no_grad():
        tiny.weight_rho.fill_(-1000)
        tiny.bias_rho.fill_(-1000)
    x = torch.zeros(2, 6, requires_grad=True)
    (tiny(x).square().sum() + tiny.divergence()).backward()
    assert deviation(tiny.weight_rho).min() == deviation(torch.tensor(LOWEST)) > 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (x, *tiny.parameters()))


@pytest.mark.parametrize("prior", PRIORS)
def test_a_layer_under_autocast_draws_the_same_in_float32(prior: Prior) -> None:
    wide = layer(prior, 64, 32)
    x = torch.randn(16, 64)
    torch.manual_seed(1)
    full = wide(x)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = wide(x)
    (lowered.square().sum() + wide.divergence()).backward()
    assert torch.equal(lowered, full)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in wide.parameters())


def untrained(**settings: object) -> BayesByBackprop:
    overrides, options = method_options("bbb", settings)
    torch.manual_seed(0)
    return cast("BayesByBackprop", build("bbb", "small", 1, 10, load_recipe("demo", "digits", overrides), options))


@pytest.mark.parametrize("prior", PRIORS)
def test_the_loss_is_cross_entropy_and_the_weighted_divergence_per_training_sample(prior: Prior) -> None:
    method = untrained(prior=prior, kl_weight=0.3)
    method.set_class_counts(torch.tensor([3, 5, 42, *[0] * 7]))
    labels = torch.arange(8)
    logits = method(torch.rand(8, 1, 8, 8))
    drawn = method.output._drawn if isinstance(method.output, VariationalLinear) else None
    found = method.loss(logits, labels)
    divergence = torch.zeros(())
    for number, (centre, std) in enumerate(method.variational[0].posteriors()):
        if prior == "gaussian":
            divergence += kl_divergence(Normal(centre, std), Normal(0.0, PRIOR_STD)).sum()
        else:
            assert drawn is not None
            divergence -= (Normal(centre, std).entropy() + mixture_log_prob(drawn[number])).sum()
    expected = F.cross_entropy(logits, labels) + 0.3 * divergence / 50
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)  # float32 sums over 1290 weights
    torch.testing.assert_close(method.terms["divergence"], divergence.detach() / 50, rtol=1e-5, atol=0)  # likewise
    moving = list(method.parameters())
    ours, theirs = (torch.autograd.grad(value, moving, retain_graph=True) for value in (found, expected))
    for gradient, other in zip(ours, theirs, strict=True):
        assert (gradient - other).norm() <= 1e-4 * other.norm()  # float32, sums in another order


@pytest.mark.parametrize(("settings", "layers"), [({}, 1), (NECK, 3)])
def test_variational_parameters_start_at_the_baseline_and_never_decay(settings: dict[str, Any], layers: int) -> None:
    method = untrained(**settings)
    assert len(method.variational) == layers
    recipe = load_recipe("demo", "digits", settings)
    torch.manual_seed(0)
    baseline = build("msp", "small", 1, 10, recipe).state_dict()
    ours = method.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in baseline.items())
    assert ours.keys() - baseline.keys() == {name for name in ours if name.endswith("_rho")}
    assert len(ours) == len(baseline) + 2 * layers
    decay = {
        id(parameter): group["weight_decay"]
        for group in parameter_groups(method, method.turns()[0], recipe)
        for parameter in cast("list[nn.Parameter]", group["params"])
    }
    variational = {id(parameter) for each in method.variational for parameter in each.parameters()}
    assert recipe.weight_decay > 0
    assert recipe.decay_norms
    assert all(decay[key] == (0 if key in variational else recipe.weight_decay) for key in decay)


@pytest.mark.parametrize("settings", [{}, NECK])
def test_a_prediction_is_the_mean_over_draws_and_leaves_the_network_as_it_was(settings: dict[str, Any]) -> None:
    trainer = trainer_for("bbb", epochs=2, samples=30, **settings)
    train(trainer)
    method = cast("BayesByBackprop", trainer.method)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    pixels = images("test", 0).images[:32]
    outputs = predict(trainer, pixels)
    assert outputs.samples is not None
    assert outputs.samples.shape == (32, method.passes, 10) == (32, 30, 10)
    p = outputs.samples.double().exp()
    torch.testing.assert_close(outputs.probabilities, p.mean(1), rtol=1e-5, atol=1e-8)  # samples are stored as float32
    assert (p.std(1) > 0).any()
    with torch.no_grad():
        assert torch.equal(outputs.features, method.network(trainer.transform.plain(pixels)))
    assert (outputs.own["mutual_information"] >= 0).all()
    assert not any(each.training for each in method.modules())
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_what_is_predicted_does_not_depend_on_the_batch_but_for_the_draws() -> None:
    trainer = trainer_for("bbb", epochs=2, samples=500, **NECK)
    train(trainer)
    pixels = images("test", 0).images[:32]
    whole, few = (predict(trainer, pixels[:count]).samples for count in (32, 4))
    assert whole is not None
    assert few is not None
    first, second = whole[:4].double().exp(), few.double().exp()
    error = ((first.var(1) + second.var(1)) / 500).sqrt()
    # 40 differences of means of 500 draws each: 5 standard errors, and 1e-6 where all draws are near 0 or 1
    assert ((first.mean(1) - second.mean(1)).abs() < 5 * error + 1e-6).all()


def epochs(trainer: Trainer, *numbers: int) -> None:
    for number in numbers:
        for _ in trainer.epoch_steps(number, 0):
            pass
        trainer.end_epoch(number)


@pytest.mark.parametrize("prior", PRIORS)
def test_training_resumes_bit_for_bit(prior: Prior) -> None:
    whole, first, second = (trainer_for("bbb", epochs=2, prior=prior) for _ in range(3))
    epochs(whole, 0, 1)
    epochs(first, 0)
    second.load(first.state())
    epochs(second, 1)
    resumed = second.method.state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.method.state_dict().items())


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"kl_weight": 0.0}, ValueError, "kl_weight must be positive and finite, got 0.0"),
        ({"samples": 0}, ValueError, "samples must be between 1 and 10,000, got 0"),
        ({"prior": "laplace"}, RecipeError, "prior is 'laplace' in the options of bbb; .* one of gaussian, mixture"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        trainer_for("bbb", **settings)


def test_a_loss_without_the_number_of_training_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="call set_class_counts first"):
        untrained().loss(torch.zeros(2, 10), torch.zeros(2, dtype=torch.int64))


def test_a_divergence_from_the_mixture_needs_a_draw() -> None:
    with pytest.raises(ValueError, match="call the layer first"):
        layer("mixture").divergence()
