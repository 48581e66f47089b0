"""Doubles: classes for an image's quarter turns, which train the network and are not seen afterwards."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.head import MoGMMHead
from dsui.methods.doubles import Doubles
from dsui.methods.dsui import DualSupervised
from dsui.methods.msp import MaxSoftmax
from dsui.methods.registry import build
from dsui.outputs import Outputs
from dsui.runs.recipe_file import load_recipe
from dsui.scores import all_scores, reference
from tests.support.digit_runs import HELD_OUT, evaluation, run
from tests.support.on_digits import TrainedRun, images, means, noise, one_seed, three_seeds, trainer_for

COUNTS = torch.tensor([30, 10, 20, 25, 15])


def made(name: str, copies: int = 1, **options: Any) -> Doubles:
    torch.manual_seed(0)
    settings = {"doubles": "turns", "doubles_copies": copies}
    method = build(name, "small", 1, len(COUNTS), load_recipe("demo", "digits", settings), options)
    assert isinstance(method, Doubles)
    method.set_class_counts(COUNTS)
    return method.eval()


def pixels(count: int = 32) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1


def of_five_classes(head: MoGMMHead) -> MoGMMHead:
    """A head for the upright classes alone, made by hand."""
    alone = MoGMMHead(head.in_features, len(COUNTS), head.components, temperature=float(head.temperature))
    alone.load_state_dict(
        {
            name: value[: len(COUNTS)] if value.shape[:1] == (4 * len(COUNTS),) else value
            for name, value in head.state_dict().items()
        }
    )
    alone.set_class_prior(COUNTS.tolist())
    return alone.eval()


@torch.no_grad()
@pytest.mark.parametrize("copies", [1, 3])
def test_the_upright_view_is_a_head_with_the_upright_rows_alone(copies: int) -> None:
    method, batch = made("dsui", copies), pixels()
    assert isinstance(method.method, DualSupervised)
    method.method.head.log_variances.copy_(0.3 * torch.randn_like(method.method.head.log_variances))
    alone = of_five_classes(method.method.head)
    features = method.method.network(batch)
    upright, expected = method.predict(batch), alone(features)
    share = (upright.features.norm(dim=1) / upright.features.shape[1] ** 0.5).clamp(max=1)[:, None]
    assert upright.log_joint is not None
    assert upright.class_scores is not None
    assert upright.weight is not None
    for found, wanted in (
        (upright.logits, expected.logits * share),
        (upright.class_scores, expected.class_scores),
        (upright.log_joint, expected.log_joint),
        (upright.log_joint.logsumexp(1), alone.log_prob(features)),
        (upright.weight, alone.class_weights * alone.logit_scale),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)  # float32 products, in blocks of another size


@pytest.mark.parametrize(("copies", "upright"), [(1, 3), (3, 1)])
def test_a_class_is_met_upright_three_times_as_often_as_in_a_drawn_turn(copies: int, upright: int) -> None:
    method = made("dsui", copies)
    assert isinstance(method.method, DualSupervised)
    prior = method.method.head.class_prior.double()
    expected = torch.cat([upright * COUNTS, COUNTS, COUNTS, COUNTS]).double()
    torch.testing.assert_close(prior, expected / expected.sum(), rtol=1e-6, atol=0)  # a float32 buffer
    assert method.upright_share == pytest.approx(prior[: len(COUNTS)].sum().item())


@torch.no_grad()
def test_mixtures_that_predict_and_normalised_logits_are_those_of_the_upright_classes() -> None:
    mixtures, batch = made("dsui-density"), pixels()
    plain = made("dsui").predict(batch)  # the same weights
    found = mixtures.predict(batch)
    assert plain.class_scores is not None
    share = (plain.features.norm(dim=1, keepdim=True) / plain.features.shape[1] ** 0.5).clamp(max=1)
    centred = (plain.class_scores - plain.class_scores.mean(1, keepdim=True)) * share
    torch.testing.assert_close(found.logits, centred, rtol=1e-4, atol=1e-4)  # float32 logsumexps

    normed = made("logitnorm")
    whole, found = normed.method.predict(batch).logits.double(), normed.predict(batch)
    torch.testing.assert_close(found.own["logit_norm"], -whole[:, :5].norm(dim=1))
    trained = (whole / whole.norm(dim=1, keepdim=True) / 0.04)[:, :5].softmax(1).amax(1)
    torch.testing.assert_close(found.own["normalized"].exp(), 1 - trained, rtol=1e-5, atol=1e-9)  # the 1e-7 in |f|


def with_other_doubles(run: TrainedRun) -> Doubles:
    """The trained method, but for everything that belongs to a turned class."""
    run.trainer.method.zero_grad()
    run.trainer.method.terms.clear()
    method = deepcopy(run.trainer.method)
    assert isinstance(method, Doubles)
    inner = method.method
    if isinstance(inner, DualSupervised):
        rows = [inner.head.means, inner.head.log_variances, inner.head.mixing_logits]
    else:
        assert isinstance(inner, MaxSoftmax)
        rows = [inner.output.weight, inner.output.bias]
    with torch.no_grad():
        for each in rows:
            each[10:] += torch.randn_like(each[10:])
    return method


@pytest.mark.parametrize("name", ["dsui", "msp"])
def test_what_the_turned_classes_became_changes_their_own_evidence_alone(name: str) -> None:
    run = one_seed(name, 0, doubles="turns")
    inputs = run.trainer.transform.plain(images("test", 0).images)
    with torch.no_grad():
        before, after = run.trainer.method.predict(inputs), with_other_doubles(run).predict(inputs)
    assert torch.equal(before.predictions, after.predictions)
    ours, theirs = (all_scores(each, reference([each])) for each in (before, after))
    assert ours.keys() == theirs.keys()
    for score in ours.keys() - {"turned_evidence"}:
        torch.testing.assert_close(ours[score], theirs[score], rtol=1e-6, atol=1e-6, msg=score)  # float32 products
    assert {"uncertainty", "foreignness", "energy"} < ours.keys()
    assert not torch.allclose(ours["turned_evidence"], theirs["turned_evidence"], atol=0.1)


def test_everything_after_the_prediction_knows_the_upright_classes_alone() -> None:
    found = one_seed("dsui", 0, doubles="turns").test
    assert found.weight is not None
    wide = {name: value.shape for name, value in found.tensors().items() if value.ndim == 2 and name != "features"}
    assert wide == {
        "logits": (len(found), 10),
        "class_scores": (len(found), 10),
        "log_joint": (len(found), 10),
        "weight": (10, found.features.shape[1]),
    }
    torch.testing.assert_close(found.features @ found.weight.mT, found.logits, rtol=1e-4, atol=1e-4)  # float32


def test_reaches_on_256_digits_over_three_seeds_and_sees_how_digits_are_turned() -> None:
    runs = three_seeds("dsui", doubles="turns")
    accuracy, errors, foreign = means(runs)
    assert accuracy > 0.95  # 96.3 % when written; 95.9 without doubles
    assert errors > 0.94  # 96.0; 96.5
    assert foreign > 0.95  # 97.4; 95.6
    for trainer, _, _ in runs:
        inputs = trainer.transform.plain(images("test", 0).images)
        for quarter in range(4):
            seen = trainer.method.seen_turns(inputs.rot90(quarter, (2, 3)))
            assert (seen == quarter).double().mean() > 0.85, quarter  # 93.7 % on the mean


def test_the_ball_is_as_large_as_upright_features_are_long() -> None:
    """Batch norm makes the mean of |h|^2 over both halves M; upright ones alone are a few percent off."""
    trainer = one_seed("dsui", 0, doubles="turns").trainer
    with torch.no_grad():
        outputs = trainer.method.predict(trainer.transform.plain(images("train", 0).images))
    assert outputs.norm is not None
    radius = outputs.norm.square().mean().sqrt() / outputs.features.shape[1] ** 0.5
    assert 0.9 < radius < 1.1  # 0.94 when written


def test_doubles_of_an_ensemble_are_its_members_doubles() -> None:
    trainer = trainer_for("ensemble", epochs=2, doubles="turns", members=2)
    assert trainer.method.copies == 1
    for _ in trainer.epoch_steps(0, 0):
        pass
    trainer.method.eval()
    with torch.no_grad():
        outputs = trainer.method.predict(trainer.transform.plain(images("test", 0).images[:16]))
        seen = trainer.method.seen_turns(trainer.transform.plain(images("test", 0).images[:16]))
    assert isinstance(outputs, Outputs)
    assert outputs.logits.shape == (16, 10)
    assert seen.shape == (16,)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("rkl", r"rkl cannot be trained with doubles; train with --set doubles=none or choose .* dsui, msp, logitnorm"),
        ("bbb", "bbb cannot be trained with doubles"),
        ("g-openmax", "g-openmax cannot be trained with doubles"),
        ("rotpred", "rotpred has turned copies of its own; train with --set doubles=none"),
    ],
)
def test_methods_without_one_loss_for_each_image_have_no_doubles(method: str, sentence: str) -> None:
    with pytest.raises(DsuiError, match=sentence):
        build(method, "small", 1, 10, load_recipe("demo", "digits", {"doubles": "turns"}))


def test_a_method_without_turned_images_sees_no_turns() -> None:
    with pytest.raises(DsuiError, match="MaxSoftmax is not trained on turned images"):
        build("msp", "small", 1, 10, load_recipe("demo", "digits")).seen_turns(pixels())


def test_noise_is_foreign_to_the_density_of_the_upright_classes() -> None:
    assert all(noise(run, "density_energy") > 0.95 for run in three_seeds("dsui", doubles="turns"))


def test_a_run_with_doubles_is_evaluated_and_predicts_like_any_other() -> None:
    path = run("dsui", known="0,1,2,4,5,9", held_out=HELD_OUT, epochs=4, doubles="turns")
    with evaluation(path, detectors=["mahalanobis", "vim"]) as found:
        rows = found.evaluate(["misclassification", "open-set"])
    scores = {row.score for row in rows if row.task == "open-set"}
    assert {"uncertainty", "foreignness", "turned_evidence", "mahalanobis", "vim", "log_density"} <= scores
    assert {row.recipe for row in rows} == {f"demo, doubles=turns, epochs=4, calibration={HELD_OUT:g}"}
    predictor = Predictor.load(path)
    prediction = predictor.predict(images("test", 0).images[:8])
    assert prediction.probabilities.shape == (8, 6)
    assert len(predictor.classes) == 6
    assert predictor.threshold(coverage=0.9).images == len(predictor.calibration.uncertainties) > 0
