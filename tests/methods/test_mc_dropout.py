"""MC dropout: the baseline's weights, dropout alone at random, and what it reaches on 256 digits.

The neck is an eighth of its width here, for speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from statistics import mean
from typing import Any, cast

import pytest
import torch
from scipy.stats import entropy
from torch import Tensor, nn

from dsui.backbones.neck import Neck
from dsui.errors import DsuiError
from dsui.evaluation.metrics import auroc
from dsui.methods.mc_dropout import MCDropout
from dsui.methods.msp import MaxSoftmax
from dsui.methods.registry import build
from dsui.runs.recipe_file import load_recipe
from dsui.training.trainer import Trainer
from tests.support.on_digits import errors, images, means, noise, predict, train, train_new, trainer_for

NECK: dict[str, Any] = {"neck": True, "dropout": 0.2}


@pytest.fixture(scope="module", autouse=True)
def _narrow_neck() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsui.methods.network.Neck", partial(Neck, width=256))
        yield


@pytest.fixture(scope="module")
def run() -> Trainer:
    trainer = trainer_for("mc-dropout", epochs=4, **NECK)
    train(trainer)
    return trainer


def inputs(trainer: Trainer, count: int) -> Tensor:
    return trainer.transform.plain(images("test", 0).images[:count])


def test_reaches_on_256_digits_over_three_seeds() -> None:
    runs = tuple(train_new("mc-dropout", seed, None, epochs=20, samples=20, **NECK) for seed in range(3))
    least = (0.95, 0.95, 0.93)  # 96.2, 96.2, 95.3 when written
    assert all(found > bar for found, bar in zip(means(runs), least, strict=True))
    assert mean(noise(run, "mutual_information") for run in runs) > 0.95  # 96.3
    assert mean(auroc(run.test.own["mutual_information"], errors(run)) for run in runs) > 0.93  # 95.0


def test_trains_to_the_weights_of_the_baseline_bit_for_bit(run: Trainer) -> None:
    baseline = trainer_for("msp", epochs=4, **NECK)
    train(baseline)
    ours = run.method.state_dict()
    assert ours.keys() == baseline.method.state_dict().keys()
    assert all(torch.equal(value, ours[name]) for name, value in baseline.method.state_dict().items())


@torch.no_grad()
def test_weights_of_the_baseline_load_and_give_its_features(run: Trainer) -> None:
    recipe = load_recipe("demo", "digits", NECK)
    baseline, loaded = build("msp", "small", 1, 10, recipe).eval(), build("mc-dropout", "small", 1, 10, recipe).eval()
    baseline.load_state_dict(run.method.state_dict())
    loaded.load_state_dict(baseline.state_dict())
    x = inputs(run, 16)
    assert torch.equal(loaded.predict(x).features, baseline.predict(x).features)


@torch.no_grad()
def test_the_backbone_runs_once_and_of_the_rest_only_dropout_is_in_training_mode(run: Trainer) -> None:
    method = cast("MCDropout", run.method)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    backbone_runs, training = [], []
    hooks = [
        method.network.backbone.register_forward_hook(lambda *_: backbone_runs.append(1)),
        method.output.register_forward_hook(lambda *_: training.append([m for m in method.modules() if m.training])),
    ]
    method.predict(inputs(run, 16))
    for hook in hooks:
        hook.remove()
    assert len(backbone_runs) == 1
    assert len(training) == method.passes == 50
    assert all(len(layers) == 2 and all(isinstance(layer, nn.Dropout) for layer in layers) for layers in training)
    assert not any(layer.training for layer in method.modules())
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


@torch.no_grad()
def test_modes_are_restored_after_an_exception(run: Trainer) -> None:
    method = cast("MCDropout", run.method)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = method.output.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        method.predict(inputs(run, 4))
    hook.remove()
    assert not any(layer.training for layer in method.modules())


@torch.no_grad()
def test_what_is_predicted_does_not_depend_on_the_batch_but_for_the_draws(run: Trainer) -> None:
    method = cast("MCDropout", run.method)
    x = inputs(run, 64)
    torch.manual_seed(0)
    method.passes, usual = 2000, method.passes
    whole, few = method.predict(x).samples, method.predict(x[:4]).samples
    method.passes = usual
    assert whole is not None
    assert few is not None
    first, second = whole[:4].double().exp(), few.double().exp()
    error = ((first.var(1) + second.var(1)) / 2000).sqrt()
    # 40 differences of means of 2000 draws each: 5 standard errors, and 1e-6 where all draws are near 0 or 1
    assert ((first.mean(1) - second.mean(1)).abs() < 5 * error + 1e-6).all()


@torch.no_grad()
def test_without_dropout_every_pass_is_the_baseline_s(run: Trainer) -> None:
    method = cast("MCDropout", run.method)
    dropouts = [layer for layer in method.modules() if isinstance(layer, nn.Dropout)]
    x = inputs(run, 16)
    baseline = MaxSoftmax.predict(method, x)
    for layer in dropouts:
        layer.p = 0.0
    outputs = method.predict(x)
    for layer in dropouts:
        layer.p = NECK["dropout"]
    assert outputs.samples is not None
    expected = baseline.logits.double().log_softmax(1)
    torch.testing.assert_close(outputs.logits, expected, rtol=0, atol=1e-12)  # float64 from the same float32 logits
    torch.testing.assert_close(outputs.samples[:, 7].double(), expected, rtol=1e-6, atol=0)  # stored as float32
    assert (outputs.own["mutual_information"] < 1e-12).all()  # float64


@torch.no_grad()
def test_prediction_and_mutual_information_are_those_of_the_passes(run: Trainer) -> None:
    outputs = predict(run, images("test", 0).images[:64])
    assert outputs.samples is not None
    assert outputs.samples.shape == (64, 50, 10)
    p = outputs.samples.double().exp()
    torch.testing.assert_close(outputs.probabilities, p.mean(1), rtol=1e-5, atol=1e-8)  # samples are stored as float32
    expected = entropy(p.mean(1).numpy(), axis=1) - entropy(p.numpy(), axis=2).mean(1)
    information = outputs.own["mutual_information"]
    torch.testing.assert_close(information, torch.from_numpy(expected), rtol=1e-4, atol=1e-6)  # likewise
    assert (information >= 0).all()
    assert (information < math.log(10)).all()
    assert information.max() > 0.01


@pytest.mark.parametrize("settings", [{"neck": False, "dropout": 0.2}, {"neck": True, "dropout": 0.0}])
def test_is_refused_where_there_is_nothing_to_sample(settings: dict[str, Any]) -> None:
    with pytest.raises(DsuiError, match=r"'demo' has none; choose .* --set neck=true --set dropout=0.2"):
        trainer_for("mc-dropout", **settings)


def test_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="samples must be between 1 and 10,000, got 0"):
        trainer_for("mc-dropout", samples=0, **NECK)
