"""C2AE: its loss, whom it draws, who moves in which turn, and what it reaches on the digits 0 to 5."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from statistics import mean
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.backbones.decoder import resize
from dsui.data.dataset import MemorySet
from dsui.data.noise import uniform_noise
from dsui.evaluation.metrics import auroc
from dsui.methods.c2ae import ConditionedAutoEncoder, foreign_partners, wrong_labels
from dsui.methods.registry import build
from dsui.pareto import threshold_between
from dsui.recipe import Recipe
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.training.distributed import World
from dsui.training.trainer import Trainer
from tests.support.on_digits import CPU, changed_by_update, images, predict, train, trainer_for
from tests.support.plain_loss import FIRST_STEP, plain_loss

KNOWN = tuple("012345")


def made(
    backbone: str = "small", channels: int = 1, recipe: Recipe | None = None, **options: object
) -> ConditionedAutoEncoder:
    torch.manual_seed(0)
    method = build("c2ae", backbone, channels, 10, recipe or load_recipe("demo", "digits"), options)
    assert isinstance(method, ConditionedAutoEncoder)
    return method


def pixels(count: int = 8, channels: int = 1, side: int = 8) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1)) * 2 - 1


def drawn(method: ConditionedAutoEncoder, image: Tensor, label: int) -> Tensor:
    """One image [channels, H, W] decoded under a label, without what the method shares between images."""
    z = method.network(image[None])[0]
    code = torch.tensor([1.0 if other == label else -1.0 for other in range(10)], dtype=image.dtype)
    gamma, beta = (layer.weight @ code + layer.bias for layer in (method.gain, method.shift))
    large: Tensor = method.decoder((gamma * z + beta)[None])[0]
    height, width = image.shape[1:]
    return large.reshape(len(image), height, 32 // height, width, 32 // width).mean((2, 4))


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 16)])
def test_loss_weighs_errors_under_the_right_label_and_those_of_a_foreign_image_under_a_wrong_one(
    channels: int, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean, std = ([0.4], [0.3]) if channels == 1 else ([0.4, 0.5, 0.6], [0.2, 0.5, 1.0])
    recipe = load_recipe("demo", "digits", {"mean": mean, "std": std})
    method, batch = made("small", channels, recipe, match_weight=0.7).double(), pixels(4, channels, side).double()
    method.network(batch)  # moves the running statistics from where they start
    labels, wrong, partners = torch.tensor([3, 3, 7, 0]), torch.tensor([5, 0, 3, 9]), torch.tensor([2, 3, 0, 1])
    found = torch.tensor([True, True, False, True])
    monkeypatch.setattr("dsui.methods.c2ae.wrong_labels", lambda *_: wrong)
    monkeypatch.setattr("dsui.methods.c2ae.foreign_partners", lambda _: (partners, found))
    method.turn = 1
    value = method.loss(method(batch), labels)
    assert method.network.training
    method.eval()
    scale, offset = (torch.tensor(part).double().view(-1, 1, 1) for part in (std, mean))
    right = [batch[i] * scale + offset - drawn(method, batch[i], int(labels[i])) for i in range(4)]
    other = [batch[partners[i]] * scale + offset - drawn(method, batch[i], int(wrong[i])) for i in (0, 1, 3)]
    match, non_match = (torch.stack(part).abs().mean() for part in (right, other))
    expected = {"value": 0.7 * match + 0.3 * non_match, "match": match, "non_match": non_match}
    torch.testing.assert_close({"value": value, **method.terms}, expected, rtol=1e-12, atol=0)  # float64, other order


def test_partners_are_of_another_class_and_all_of_these_equally_likely() -> None:
    torch.manual_seed(0)
    labels, trials = torch.tensor([0, 0, 0, 1, 1, 2]), 4000
    drawn = torch.stack([foreign_partners(labels)[0] for _ in range(trials)])  # [trials, 6]
    shares = F.one_hot(drawn, 6).double().mean(0)
    others = (labels[:, None] != labels).double()
    expected = others / others.sum(1, keepdim=True)
    assert shares[others == 0].max() == 0
    assert (shares - expected).abs().max() < 5 * 0.5 / trials**0.5  # five deviations of a share at most
    assert foreign_partners(labels)[1].all()
    assert not foreign_partners(torch.full((4,), 2))[1].any()


def test_wrong_labels_are_never_the_own_and_all_others_equally_likely() -> None:
    torch.manual_seed(0)
    labels = torch.arange(5).repeat(4000)
    counts = torch.zeros(5, 5).index_put_((labels, wrong_labels(labels, 5)), torch.ones(()), accumulate=True)
    assert counts.diagonal().max() == 0
    assert (counts / 4000 - (1 - torch.eye(5)) / 4).abs().max() < 5 * 0.5 / 4000**0.5  # five deviations at most


@pytest.mark.parametrize("backbone", ["small", "resnet18"])
def test_each_turn_moves_its_own_part_and_nothing_else(backbone: str) -> None:
    method = made(backbone, channels=3, recipe=load_recipe("demo", "digits", {"neck": True, "dropout": 0.5}))
    batch = pixels(4, 3, 16)
    decoding = {name for name in method.state_dict() if name.startswith(("decoder.", "gain.", "shift."))}
    assert changed_by_update(method, 1, batch) == decoding
    assert all(parameter.grad is None for parameter in method.turns()[0].parameters)
    first = changed_by_update(method, 0, batch)
    assert first == set(method.state_dict()) - decoding - {"threshold"}
    assert any("running_mean" in name for name in first)


def test_its_classifier_is_that_of_the_baseline_in_half_of_the_epochs_to_the_bit() -> None:
    common: dict[str, Any] = {"rate_warm_up": 0, "neck": True, "dropout": 0.2}
    ours, theirs = (trainer_for(name, epochs=epochs, **common) for name, epochs in (("c2ae", 2), ("msp", 1)))
    train(ours)
    train(theirs)
    state = ours.method.state_dict()
    assert [name for name, value in theirs.method.state_dict().items() if not torch.equal(value, state[name])] == []


@torch.no_grad()
def test_reconstruction_is_the_least_error_over_all_labels() -> None:
    method, batch = made(channels=3).eval(), pixels(5, 3, 16)
    found = method.predict(batch).own["reconstruction"]
    errors = [[((x + 1) / 2 - drawn(method, x, label)).abs().mean() for label in range(10)] for x in batch]
    expected = torch.tensor(errors).amin(1).double()
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)  # float32 in another order
    assert torch.tensor(errors).argmin(1).unique().numel() > 1  # or one label would do


def test_unknown_is_how_far_the_error_lies_above_the_threshold_between_right_and_wrong_labels() -> None:
    method, batches = made(channels=3).eval(), [(pixels(40, 3, 16), torch.arange(40) % 10)] * 2
    torch.manual_seed(0)
    method.complete(batches)
    torch.manual_seed(0)
    errors = list[Tensor]()
    for batch, labels in batches:
        given = torch.stack([labels, wrong_labels(labels, 10)])
        rows = [[drawn(method, x, int(label)) for x, label in zip(batch, each, strict=True)] for each in given]
        images = torch.stack([torch.stack(row) for row in rows])
        errors.append(((batch + 1) / 2 - images).detach().double().abs().mean((2, 3, 4)))
    right, other = torch.cat(errors, 1)
    # right and wrong are alike before training, so the threshold is set anywhere; in float32 errors have six digits
    torch.testing.assert_close(method.threshold, threshold_between(right, other), rtol=1e-3, atol=0)
    with torch.no_grad():
        own = method.predict(batches[0][0]).own
    torch.testing.assert_close(own["reconstruction"] - own["unknown"], method.threshold.expand(40))


def test_gradients_of_the_logits_do_not_wait_for_the_decoder() -> None:
    method, batch = made().eval(), pixels().requires_grad_()
    found = method.predict(batch)
    assert not found.own["reconstruction"].requires_grad
    (gradient,) = torch.autograd.grad(found.logits.sum(), batch)
    assert gradient.abs().min() > 0


def test_a_batch_of_one_class_has_no_second_term() -> None:
    method = made()
    method.turn = 1
    method.loss(method(pixels()), torch.full((8,), 3)).backward()
    assert method.terms["non_match"] == 0
    assert method.terms["match"] > 0
    gradients = [parameter.grad for parameter in method.turns()[1].parameters]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("lowered", [False, True])
def test_decoder_is_lowered_where_the_encoder_is_and_errors_are_not(
    lowered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, seen, compared = made(), list[torch.dtype](), list[torch.dtype]()

    def recorded(*given: Any) -> Tensor:
        compared.append((large := resize(*given)).dtype)
        return large

    monkeypatch.setattr("dsui.methods.c2ae.resize", recorded)
    autocast: AbstractContextManager[object] = torch.autocast("cpu", torch.bfloat16) if lowered else nullcontext()
    for part in (method.gain, method.decoder):
        part.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    method.turn = 1
    loss, _ = plain_loss(method, autocast)(pixels(), torch.arange(8), FIRST_STEP)
    assert seen == [torch.bfloat16 if lowered else torch.float32] * 2
    assert [*compared, loss.dtype] == [torch.float32] * 2


@pytest.mark.parametrize(("backbone", "width"), [("small", 32), ("resnet18", 128), ("vgg16", 128)])
def test_decoder_is_a_quarter_as_wide_as_the_backbone_with_a_neck_or_without(backbone: str, width: int) -> None:
    for neck in (False, True):
        method = made(backbone, 3, load_recipe("demo", "digits", {"neck": neck}))
        last = method.decoder.layers[-2]
        assert isinstance(last, torch.nn.ConvTranspose2d)
        assert last.in_channels == width


def test_decoder_moves_five_times_as_fast_under_sgd_and_at_the_rate_of_the_net_under_adam() -> None:
    rates = {name: made(recipe=load_recipe("demo", "digits", {"optimizer": name})).turns() for name in ("sgd", "adam")}
    assert {name: [turn.rate for turn in turns] for name, turns in rates.items()} == {"sgd": [1, 5], "adam": [1, 1]}


@pytest.mark.parametrize("weight", [0.0, 1.5, float("nan")])
def test_impossible_weights_are_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="match_weight must be above 0 and at most 1, got"):
        made(match_weight=weight)


class Reached(NamedTuple):
    """Errors of unseen digits in pixels, and AUROC of "reconstruction"."""

    right: float
    wrong: float
    noise: float
    foreign: float


def reached(seed: int) -> Reached:
    """Trained on what is 0 to 5 among 256 digits."""
    whole = images("train", seed)
    known = whole.labels < len(KNOWN)
    data = MemorySet("digits", KNOWN, whole.images[known], whole.labels[known])
    recipe = load_recipe("demo", "digits", {"epochs": 16})
    trainer = Trainer(
        RunConfig(data="digits", backbone="small", method="c2ae", seed=seed, size=8, channels=1, recipe=recipe),
        data,
        CPU,
        World(),
    )
    train(trainer)
    test = images("test", seed)
    inside, outside = (test.images[part][:200] for part in (test.labels < len(KNOWN), test.labels >= len(KNOWN)))
    labels = test.labels[test.labels < len(KNOWN)][:200]
    noise = (uniform_noise(200, (1, 8, 8), 0) * 255).round().to(torch.uint8)
    own, *foreign = (predict(trainer, each).own["reconstruction"] for each in (inside, noise, outside))
    return Reached(
        *(label_error(trainer, inside, given) for given in (labels, (labels + 1) % len(KNOWN))),
        *(auroc(torch.cat([own, each]), torch.arange(400) >= 200) for each in foreign),
    )


@torch.no_grad()
def label_error(trainer: Trainer, batch: Tensor, labels: Tensor) -> float:
    """The mean error of images decoded under these labels."""
    method = trainer.method
    assert isinstance(method, ConditionedAutoEncoder)
    method.turn = 1
    method.match_weight = 1.0
    error = method.loss(method(trainer.transform.plain(batch)), labels).item()
    method.turn = 0
    return error


def test_reaches_on_six_of_ten_digits_over_three_seeds() -> None:
    """The right label draws better than a wrong one, and neither noise nor other digits are drawn well under any."""
    runs = [reached(seed) for seed in range(3)]
    found = Reached(*map(mean, zip(*runs, strict=True)))
    assert found.right < 0.14  # 0.126 when written, 0.225 under a wrong label
    assert found.right < 0.65 * found.wrong
    assert found.noise > 0.99  # 100.0 when written
    assert found.foreign > 0.85  # 88.3 when written
