"""The baseline and DS-UI as methods: what their outputs hold and what they reach on 256 digits."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from dsui.density import LN_2PI
from dsui.errors import DsuiError
from dsui.evaluation.reliability import calibration_metrics
from dsui.methods.dsui import DualSupervised
from dsui.methods.registry import build, names
from dsui.recipe import RecipeError
from dsui.runs.recipe_file import load_recipe, method_options
from dsui.scores import all_scores, reference, sphere_logits
from tests.support.on_digits import images, means, one_seed, predict, three_seeds, train, trainer_for


@pytest.mark.parametrize(
    ("method", "least"),
    [("msp", (0.94, 0.93, 0.91)), ("dsui", (0.95, 0.95, 0.94))],  # 95.4, 95.6, 94.4 and 95.9, 96.5, 95.6 when written
)
def test_reaches_on_256_digits_over_three_seeds(method: str, least: tuple[float, float, float]) -> None:
    assert all(found > bar for found, bar in zip(means(three_seeds(method)), least, strict=True))


@pytest.mark.parametrize("method", ["msp", "dsui"])
def test_the_last_layer_in_the_outputs_gives_the_logits(method: str) -> None:
    outputs = one_seed(method, 0).test
    assert outputs.weight is not None
    again = outputs.features.double() @ outputs.weight.double().T
    again += 0 if outputs.bias is None else outputs.bias.double()
    torch.testing.assert_close(again, outputs.logits.double(), rtol=1e-5, atol=1e-4)  # float32 products of 128 terms


@pytest.mark.parametrize("method", ["msp", "dsui"])
def test_probabilities_are_honest_after_a_short_training(method: str) -> None:
    outputs = one_seed(method, 0).test
    assert outputs.labels is not None
    assert calibration_metrics(outputs.logits, outputs.labels)["nll"] < 0.25  # 0.16 and 0.17; 0.47 with scale=16


def test_dsui_outputs_hold_its_densities() -> None:
    outputs = one_seed("dsui", 0).test
    assert outputs.labels is not None
    assert outputs.log_joint is not None
    assert outputs.class_scores is not None
    assert outputs.norm is not None
    assert outputs.log_joint.shape == outputs.class_scores.shape == outputs.logits.shape
    assert outputs.log_joint.argmax(1).eq(outputs.labels).double().mean() > 0.9


@pytest.mark.parametrize(("method", "options"), [("dsui", {}), ("msp", {"sphere": True})])
def test_short_features_are_predicted_as_on_the_sphere_but_with_less_confidence(
    method: str, options: dict[str, object]
) -> None:
    trainer, outputs, _ = one_seed(method, 0, **options)
    assert outputs.norm is not None
    on_sphere = sphere_logits(outputs)
    assert on_sphere is not None
    with torch.no_grad():
        trained_on = trainer.method.logits(trainer.method(trainer.transform.plain(images("test", 0).images))).double()
    torch.testing.assert_close(on_sphere, trained_on, rtol=1e-4, atol=1e-4)  # float32, other block sizes
    radius = outputs.features.shape[1] ** 0.5
    short = outputs.norm < radius
    assert 0.2 < short.double().mean() < 0.9
    lengths = outputs.features.norm(dim=1)
    torch.testing.assert_close(lengths, outputs.norm.clamp(max=radius), rtol=1e-3, atol=0)  # EPSILON of the projection
    confidence, trained_confidence = outputs.probabilities.amax(1), on_sphere.softmax(1).amax(1)
    assert (confidence[short] < trained_confidence[short]).double().mean() > 0.99  # a bias may turn a few
    torch.testing.assert_close(confidence[~short], trained_confidence[~short])


def test_a_margin_is_what_the_label_must_be_ahead_by() -> None:
    labels, logits = torch.tensor([2, 0, 1]), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    plain, ahead = (
        build("msp", "small", 1, 4, load_recipe("demo", "digits"), {"margin": margin}) for margin in (0.0, 2.5)
    )
    own = logits - 2.5 * torch.eye(4)[labels]
    torch.testing.assert_close(plain.loss(logits, labels), F.cross_entropy(logits, labels))
    torch.testing.assert_close(ahead.loss(logits, labels), F.cross_entropy(own, labels))
    with pytest.raises(ValueError, match="margin must be at least 0 and finite, got -1"):
        build("msp", "small", 1, 4, load_recipe("demo", "digits"), {"margin": -1.0})


def test_features_that_were_never_on_a_sphere_are_left_alone() -> None:
    method = build("dsui", "small", 1, 10, load_recipe("demo", "digits", {"head": "released", "neck": True})).eval()
    pixels = torch.rand(8, 1, 8, 8)
    with torch.no_grad():
        outputs, output = method.predict(pixels), method(pixels)
    assert outputs.norm is None
    assert torch.equal(outputs.logits, output.logits)
    floored = output.log_prior + ((output.log_joint - output.log_prior + 0.5 * 2048 * LN_2PI).exp() + 1e-8).log()
    assert outputs.class_scores is not None
    torch.testing.assert_close(outputs.class_scores, floored)  # the posterior of the authors' code


@pytest.mark.parametrize("method", sorted(set(names()) - {"mc-dropout", "bbb", "sde-net"}))  # whose draws differ
def test_a_prediction_does_not_depend_on_its_neighbours_in_the_batch(method: str) -> None:
    trainer = trainer_for(method, epochs=2)
    train(trainer)
    pixels = images("test", 0).images[:64]
    whole, half = predict(trainer, pixels), predict(trainer, pixels[:32])
    torch.testing.assert_close(whole.logits[:32], half.logits, rtol=1e-4, atol=1e-4)  # float32, other block sizes


@pytest.mark.parametrize("method", names())
def test_every_figure_of_every_epoch_is_a_number(method: str) -> None:
    trainer = trainer_for(method, epochs=2, neck=True, dropout=0.2)  # the second is in a second phase for some
    for epoch in range(2):
        for _ in trainer.epoch_steps(epoch, 0):
            pass
        figures = trainer.step.meter.sums()
        assert all(map(math.isfinite, figures.values())), figures
        trainer.end_epoch(epoch)


@pytest.mark.parametrize("method", names())
def test_the_last_layer_is_float32_where_those_before_it_are_lowered(method: str) -> None:
    made = build(method, "small", 1, 10, load_recipe("demo", "digits", {"neck": True, "dropout": 0.2}))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = made.logits(made(torch.rand(8, 1, 8, 8)))
    assert found.dtype == torch.float32
    assert not torch.equal(found, found.bfloat16().float())


def test_kappa_sets_the_temperature_and_never_below_one() -> None:
    recipe = load_recipe("demo", "digits")
    made = [build("dsui", "small", 1, 10, recipe, {"kappa": kappa}) for kappa in (16.0, 64.0, 1000.0)]
    assert [float(method.get_buffer("head.temperature")) for method in made] == [8.0, 2.0, 1.0]  # of 128 features


PRINTED_LAYER = {"project": False, "logit_scale": "one", "kappa": None}


def test_the_layer_can_be_as_the_paper_prints_it() -> None:
    recipe = load_recipe("demo", "digits", {"neck": True})
    method = build(
        "dsui", "small", 1, 10, recipe, {"objective": "literal", "regularizer": "reg-paper", **PRINTED_LAYER}
    )
    assert isinstance(method, DualSupervised)
    head, pixels = method.eval().head, torch.rand(8, 1, 8, 8)
    with torch.no_grad():
        features, output, outputs = method.network(pixels), method(pixels), method.predict(pixels)
    assert (head.projection, head.logit_scale, float(head.temperature)) == (None, 1.0, 1.0)
    assert features.min() < 0 < features.max(), "after batch norm and LeakyReLU"
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.logits, features @ head.class_weights.T)
    torch.testing.assert_close(output.class_scores, output.log_joint)
    assert outputs.norm is None
    found = all_scores(outputs, reference([outputs]))
    assert {"density_max_probability", "log_density", "sirc_energy"} <= found.keys()
    assert not {"norm", "sphere_energy"} & found.keys()
    torch.testing.assert_close(found["uncertainty"], found["sirc_energy"])


def test_each_part_of_the_layer_is_switched_on_its_own() -> None:
    recipe = load_recipe("demo", "digits")
    for option, value in PRINTED_LAYER.items():
        method = build("dsui", "small", 1, 10, recipe, {option: value})
        assert isinstance(method, DualSupervised)
        head = method.head
        parts = (head.projection is None, head.log_logit_scale is None, float(head.temperature) == 1.0)
        assert parts == tuple(option == other for other in PRINTED_LAYER)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "released", "project": False}, "head=released has neither sphere nor .* leave out project, or"),
        ({"head": "released", "kappa": 16.0, "scale": 16.0}, "leave out scale and kappa, or choose head=mogmm"),
        ({"logit_scale": "one", "scale": 16.0}, "scale is where a learned logit scale starts; leave it out"),
        ({"objective": "printed-stable", "project": False}, "printed-stable has a lower bound only on the sphere"),
        ({"objective": "printed-stable", "head": "released"}, "printed-stable has a lower bound only on the sphere"),
        ({"kappa": 0.0}, "kappa must be positive and finite"),
    ],
)
def test_settings_of_the_layer_that_contradict_each_other_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("dsui", "small", 1, 10, load_recipe("demo", "digits"), options)


def test_options_belong_to_their_method() -> None:
    with pytest.raises(RecipeError, match="neither the recipe nor msp has a setting 'epoch'; did you mean 'epochs'"):
        method_options("msp", {"epoch": 3})
    with pytest.raises(DsuiError, match="no method 'dsu'; did you mean dsui"):
        method_options("dsu", {})


def test_outliers_are_refused_by_a_method_that_does_not_learn_from_them() -> None:
    with pytest.raises(DsuiError, match="msp does not learn from outliers; leave out --outliers"):
        build("msp", "small", 1, 10, load_recipe("demo", "digits"), outliers=True)
