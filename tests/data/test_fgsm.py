"""Fast gradient sign method: closed forms on linear models, a trained net, and what must stay untouched."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui.backbones.small import SmallNet
from dsui.data.digits import digit_set
from dsui.data.fgsm import fgsm, mean_log_probabilities

LogProbabilities = Callable[[Tensor], Tensor]
Space = Literal["pixel", "normalised"]
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
CLASSES = 4


def normalise(images: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    centre, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return (images.float() / 255 - centre) / scale


def batch(count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 5, 5), dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, CLASSES, (count,), generator=generator)


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(75, CLASSES)


def classifier(model: nn.Module) -> LogProbabilities:
    def log_probabilities(images: Tensor) -> Tensor:
        logits: Tensor = model(images.flatten(1))
        return logits.log_softmax(1)

    return log_probabilities


@pytest.fixture(scope="module")
def net() -> nn.Module:
    """A small net after forty steps on the embedded digits."""
    train = digit_set("train")
    torch.manual_seed(0)
    model = nn.Sequential(SmallNet(width=8), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(40):
        chosen = torch.randint(0, len(train.labels), (128,))
        optimiser.zero_grad()
        loss = F.cross_entropy(model(normalise(train.images[chosen], (0.5,), (0.5,))), train.labels[chosen])
        loss.backward()
        optimiser.step()
    optimiser.zero_grad()
    return model.eval()


def predict(net: nn.Module) -> LogProbabilities:
    return lambda images: net(images).log_softmax(1)


def test_the_step_follows_the_analytic_gradient_of_a_linear_model() -> None:
    images, labels = batch()
    model = linear()
    clean = normalise(images)
    residual = classifier(model)(clean).exp() - F.one_hot(labels, CLASSES)
    direction = (residual @ model.weight).view_as(clean).sign().detach()
    found = fgsm(classifier(model), images, labels, 0.3, "normalised", MEAN, STD)
    assert torch.equal(found, clean + 0.3 * direction)
    centre, scale = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    pixels = (images.float() / 255 + 0.3 * direction).clamp(0, 1)
    assert torch.equal(fgsm(classifier(model), images, labels, 0.3, "pixel", MEAN, STD), (pixels - centre) / scale)


@pytest.mark.parametrize("space", ["pixel", "normalised"])
def test_a_small_step_raises_the_loss_of_almost_every_digit(net: nn.Module, space: Space) -> None:
    test = digit_set("test")
    attack = predict(net)
    clean = F.nll_loss(attack(normalise(test.images, (0.5,), (0.5,))), test.labels, reduction="none").detach()
    assert clean.mean().item() < 1  # the net has learnt something: ln 10 = 2.3
    attacked = fgsm(attack, test.images, test.labels, 0.01, space)
    loss = F.nll_loss(attack(attacked), test.labels, reduction="none").detach()
    assert loss.mean() > clean.mean()
    assert (loss > clean).float().mean().item() > 0.95  # a kink of the net may spoil the step of a few


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_attacked_pixels_stay_between_black_and_white(net: nn.Module, epsilon: float) -> None:
    test = digit_set("test")
    pixels = fgsm(predict(net), test.images, test.labels, epsilon) * 0.5 + 0.5
    assert pixels.min() >= 0
    assert pixels.max() <= 1


def test_without_clipping_an_epsilon_of_pixels_is_that_over_the_deviation_when_normalised() -> None:
    _, labels = batch()
    images = torch.full((6, 3, 5, 5), 128, dtype=torch.uint8)
    for channel in range(3):
        narrow = fgsm(classifier(linear()), images, labels, 0.1, "pixel", MEAN, STD)
        wide = fgsm(classifier(linear()), images, labels, 0.1 / STD[channel], "normalised", MEAN, STD)
        assert torch.allclose(narrow[:, channel], wide[:, channel], atol=1e-6)  # float32 rounding of values near 1


def test_a_whole_unit_of_epsilon_leaves_only_black_and_white_where_there_is_a_gradient() -> None:
    images, labels = batch()
    model = linear()
    with torch.no_grad():
        model.weight[:, ::3] = 0
    found = fgsm(classifier(model), images, labels, 1.0, "pixel", (0.0,), (1.0,)).flatten(1)
    blind = torch.arange(75) % 3 == 0
    assert torch.equal(found[:, blind], (images.float() / 255).flatten(1)[:, blind])
    assert set(found[:, ~blind].unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("space", ["pixel", "normalised"])
def test_epsilon_zero_gives_the_clean_image_to_the_bit(space: Space) -> None:
    images, labels = batch()
    found = fgsm(classifier(linear()), images, labels, 0, space, MEAN, STD)
    assert torch.equal(found, normalise(images))
    assert not found.requires_grad


def test_an_image_is_attacked_alike_alone_and_in_company() -> None:
    images, labels = batch()
    together = fgsm(classifier(linear()), images, labels, 0.2)
    alone = [fgsm(classifier(linear()), images[[i]], labels[[i]], 0.2) for i in range(len(images))]
    assert torch.equal(together, torch.cat(alone))


def test_no_parameter_gets_a_gradient_and_the_random_generator_stays(net: nn.Module) -> None:
    test = digit_set("test")
    kept = torch.ones(10)
    bias = net.get_parameter("1.bias")
    bias.grad = kept
    state = torch.get_rng_state()
    fgsm(predict(net), test.images[:50], test.labels[:50], 0.1)
    assert bias.grad is kept
    assert torch.equal(kept, torch.ones(10))
    bias.grad = None
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_callers_without_gradients_get_the_same_attack(
    net: nn.Module, mode: type[torch.no_grad | torch.inference_mode]
) -> None:
    test = digit_set("test")
    expected = fgsm(predict(net), test.images[:50], test.labels[:50], 0.1)
    with mode():
        found = fgsm(predict(net), test.images[:50].clone(), test.labels[:50].clone(), 0.1)
    assert torch.equal(found, expected)


def test_for_samples_the_gradient_is_that_of_the_mean_prediction() -> None:
    images, labels = batch()
    model, samples = linear(), 7
    masks = 2.0 * torch.randint(0, 2, (samples, 1, 75), generator=torch.Generator().manual_seed(1))

    def sampled(inputs: Tensor) -> Tensor:
        return mean_log_probabilities(model(masks * inputs.flatten(1)))

    inputs = normalise(images).double().requires_grad_()
    mean = (masks.double() * inputs.flatten(1) @ model.weight.double().T + model.bias.double()).softmax(2).mean(0)
    (gradient,) = torch.autograd.grad(-mean.log()[torch.arange(6), labels].sum(), inputs)
    found = fgsm(sampled, images, labels, 0.5, "normalised", MEAN, STD)
    assert torch.equal(found, normalise(images) + 0.5 * gradient.sign().float())


def test_the_mean_of_probabilities_is_taken_before_the_logarithm() -> None:
    logits = torch.randn(5, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = logits.softmax(2).mean(0).log()
    assert torch.allclose(mean_log_probabilities(logits), expected, rtol=0, atol=1e-14)  # float64 rounding
    extreme = mean_log_probabilities(torch.tensor([[[0.0, -1000.0]], [[0.0, -2000.0]]]))
    assert extreme.tolist() == [[0.0, pytest.approx(-1000 - math.log(2))]]


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be finite and not negative"):
        fgsm(classifier(linear()), *batch(), epsilon)


def test_wrong_images_labels_and_normalisations_are_refused() -> None:
    images, labels = batch()
    attack = classifier(linear())
    with pytest.raises(ValueError, match=r"images are torch.float32 .*; give uint8"):
        fgsm(attack, images.float(), labels, 0.1)
    with pytest.raises(ValueError, match=r"labels have shape \[6, 1\]"):
        fgsm(attack, images, labels[:, None], 0.1)
    with pytest.raises(ValueError, match="labels run from"):
        fgsm(attack, images, labels + CLASSES, 0.1)
    with pytest.raises(ValueError, match="std has 2 values; give one, or one for each of 3 channels"):
        fgsm(attack, images, labels, 0.1, std=(0.5, 0.5))
    with pytest.raises(ValueError, match="std must be positive"):
        fgsm(attack, images, labels, 0.1, std=(-0.5,))
    with pytest.raises(ValueError, match="space must be one of 'pixel', 'normalised'"):
        fgsm(attack, images, labels, 0.1, "pixels")  # type: ignore[arg-type]


def test_a_model_that_hides_its_gradient_is_refused() -> None:
    images, labels = batch()
    with pytest.raises(ValueError, match="cuts the gradient"):
        fgsm(lambda inputs: classifier(linear())(inputs).detach(), images, labels, 0.1)
    with pytest.raises(ValueError, match=r"returned \[6\] for 6 images; return \[batch, classes\]"):
        fgsm(lambda inputs: inputs.flatten(1).sum(1), images, labels, 0.1)
    with pytest.raises(ValueError, match="no finite gradient; use log_softmax"):
        fgsm(lambda inputs: (1000 * linear()(inputs.flatten(1))).softmax(1).log(), images, labels, 0.1)
