"""LogitNorm: a loss that the length of the logits cannot lower, and a plain network that predicts."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax

from dsui.methods.logitnorm import LogitNorm
from dsui.methods.registry import build
from dsui.runs.recipe_file import load_recipe
from tests.support.on_digits import images, means, noise, three_seeds, trainer_for


def made(temperature: float = 0.04) -> LogitNorm:
    method = build("logitnorm", "small", 1, 10, load_recipe("demo", "digits"), {"temperature": temperature})
    assert isinstance(method, LogitNorm)
    return method


def batch(seed: int = 0, classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(32, classes, generator=generator), torch.randint(classes, (32,), generator=generator)


@pytest.mark.parametrize("temperature", [0.04, 1.0])
def test_the_loss_is_the_cross_entropy_of_logits_of_length_one_over_t(temperature: float) -> None:
    logits, labels = batch()
    wide = logits.double().numpy()
    lengths = (wide**2).sum(1, keepdims=True) ** 0.5
    expected = -log_softmax(wide / lengths / temperature, axis=1)[range(32), labels.numpy()].mean()
    found = made(temperature).loss(logits, labels)
    assert found.item() == pytest.approx(expected, rel=1e-5)  # float32 against float64


def test_longer_logits_change_neither_loss_nor_the_way_downhill() -> None:
    method, (logits, labels) = made(), batch()
    found = []
    for length in (1.0, 1000.0):
        scaled = (length * logits).requires_grad_()
        loss = method.loss(scaled, labels)
        loss.backward()
        assert scaled.grad is not None
        found.append((loss.detach(), length * scaled.grad))
        along = (scaled.grad * scaled).sum(1) / (scaled.grad.norm(dim=1) * scaled.norm(dim=1)).clamp(min=1e-12)
        assert along.abs().max() < 1e-4  # a sum of ten float32 products that cancel
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)  # float32, 1 / t = 25 times enlarged


@pytest.mark.parametrize("classes", [2, 10])
def test_the_loss_is_least_where_the_label_stands_against_all_others_alike(classes: int) -> None:
    """With |f| = 1 the label can lead each other class by sqrt(C / (C - 1)), so t bounds the loss from below."""
    labels = torch.arange(classes)
    best = F.one_hot(labels, classes).float() - 1 / classes
    method = made(temperature=0.5)
    least = math.log1p((classes - 1) * math.exp(-math.sqrt(classes / (classes - 1)) / 0.5))
    assert method.loss(best, labels).item() == pytest.approx(least, rel=1e-5)  # float32
    for seed in range(20):
        logits, drawn = batch(seed, classes)
        assert all(method.loss(logits[[row]], drawn[[row]]) > least - 1e-6 for row in range(32))  # float32


def test_zero_logits_have_a_finite_loss_and_gradient() -> None:
    logits = torch.zeros(4, 10, requires_grad=True)
    loss = made().loss(logits, torch.arange(4))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(10))
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_half_precision_logits_are_normalized_in_single_precision() -> None:
    logits, labels = batch()
    half = logits.bfloat16()
    assert made().loss(half, labels) == made().loss(half.float(), labels)


def test_the_plain_network_predicts_and_the_normalized_logits_are_a_score_of_their_own() -> None:
    trainer = trainer_for("logitnorm", epochs=1)
    method = trainer.method.eval()
    pixels = trainer.transform.plain(images("test", 0).images[:64])
    with torch.no_grad():
        outputs, plain = method.predict(pixels), method(pixels)
    assert torch.equal(outputs.logits, plain)
    assert outputs.weight is not None
    assert outputs.bias is not None
    again = F.linear(outputs.features, outputs.weight, outputs.bias)
    torch.testing.assert_close(again, outputs.logits, rtol=1e-5, atol=1e-5)  # float32 products of 128 terms
    lengths = plain.double().norm(dim=1)
    torch.testing.assert_close(outputs.own["logit_norm"], -lengths)
    trained = (plain.double() / lengths[:, None] / 0.04).softmax(1).amax(1)
    torch.testing.assert_close(outputs.own["normalized"].exp(), 1 - trained, rtol=1e-5, atol=1e-9)  # the 1e-7 in |f|


def test_reaches_on_256_digits_over_three_seeds() -> None:
    """Weaker than the baseline, whose 95.4, 95.6 and 94.4 it does not reach; 92.6, 90.5 and 92.3 when written."""
    runs = three_seeds("logitnorm")
    assert all(found > bar for found, bar in zip(means(runs), (0.91, 0.88, 0.89), strict=True))
    assert all(noise(run, "logit_norm") > 0.8 for run in runs)  # noise has short logits; 88.4 on the mean when written


def test_a_warmer_loss_is_the_better_classifier_of_few_digits() -> None:
    """t = 1 gave 96.0, 95.3 and 93.3 when written: 256 digits ask for less than the cosine 0.04 wants."""
    published, warmer = means(three_seeds("logitnorm")), means(three_seeds("logitnorm", temperature=1.0))
    assert warmer[0] > published[0]
    assert warmer[1] > published[1]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_that_is_no_temperature_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be positive and finite, got"):
        made(temperature)
