"""The two prior networks: their losses, and what they reach on 256 digits without and with outliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet
from torch.distributions import kl_divergence as reference_kl
from torch.fx import GraphModule

from dsui.data.noise import noise_set
from dsui.data.photos import photo_patches
from dsui.evaluation.metrics import auroc
from dsui.methods.dirichlet import kl_divergence, label_concentrations
from dsui.methods.dpn import SMALLEST, PriorNetwork
from dsui.methods.registry import build
from dsui.runs.recipe_file import load_recipe
from dsui.training.trainer import Trainer
from tests.support.on_digits import (
    TrainedRun,
    accuracy,
    images,
    means,
    noise,
    one_seed,
    predict,
    three_seeds,
    train_new,
    trainer_for,
)
from tests.support.plain_loss import FIRST_STEP, plain_loss

BOTH = ("dpn", "rkl")


def made(name: str, num_classes: int = 10, **options: float) -> PriorNetwork:
    method = build(name, "small", 1, num_classes, load_recipe("demo", "digits"), options)
    assert isinstance(method, PriorNetwork)
    return method


def drawn(rows: int, classes: int = 10) -> Tensor:
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))


def gradient(method: PriorNetwork, logits: Tensor, labels: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    method.loss(leaf, labels).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("name", BOTH)
def test_loss_is_the_divergence_from_the_targets(name: str) -> None:
    method, logits, labels = made(name, concentration=50.0, outlier_weight=0.3), drawn(12), torch.arange(8)
    model = Dirichlet(logits.double().exp())
    target = torch.ones(12, 10, dtype=torch.float64)
    target[range(8), labels] += 50  # the last four rows are outliers
    pair = (Dirichlet(target), model) if name == "dpn" else (model, Dirichlet(target))
    divergence = reference_kl(*pair) / (1 if name == "dpn" else 50)
    expected = divergence[:8].mean() + 0.3 * divergence[8:].mean()
    assert method.loss(logits, labels).item() == pytest.approx(expected.item(), rel=1e-6)  # returned in float32
    assert set(method.terms) == {"divergence", "outlier_divergence"}
    alone = method.loss(logits[:8], labels).item()
    assert alone == pytest.approx(divergence[:8].mean().item(), rel=1e-6)  # returned in float32
    assert set(method.terms) == {"divergence"}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks at it, and drops the warning itself
@pytest.mark.parametrize("name", BOTH)
def test_nothing_is_scattered_where_the_compiler_may_look(name: str) -> None:
    """PyTorch 2.11 makes a scatter into a constant float32, and dpn's compiled gradients were garbage."""
    graphs: list[GraphModule] = []

    def keep(graph: GraphModule, _: Sequence[object]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    method, pixels, labels = made(name).eval(), torch.rand(8, 1, 8, 8), torch.arange(8)
    plain = plain_loss(method)
    torch.compiler.reset()  # other tests compile the same function, which may be done only so often
    compiled = torch.compile(plain, backend=keep)
    assert compiled(pixels, labels, FIRST_STEP)[0].item() == plain(pixels, labels, FIRST_STEP)[0].item()
    operations = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert any("digamma" in operation for operation in operations)  # the loss is compiled
    assert not any("scatter" in operation for operation in operations)


def test_reverse_divergence_is_an_expected_log_loss_with_a_pull_towards_the_flat_dirichlet() -> None:
    alpha, labels, b = (2 * drawn(64)).double().exp(), torch.arange(64) % 10, 100.0
    flat = kl_divergence(alpha, torch.ones_like(alpha))
    log_loss = torch.digamma(alpha.sum(1)) - torch.digamma(alpha.gather(1, labels[:, None])[:, 0])
    rest = kl_divergence(alpha, label_concentrations(labels, 10, b)) - flat - b * log_loss
    torch.testing.assert_close(rest, rest[:1].expand(64), rtol=0, atol=1e-8)  # float64, terms of size 1e5


@pytest.mark.parametrize("name", BOTH)
def test_loss_is_least_at_the_target(name: str) -> None:
    labels = torch.arange(10)
    target = label_concentrations(labels, 10, 100.0).log().float()
    method = made(name, concentration=100.0)
    assert method.loss(target, labels).abs() < 1e-6  # logits are float32
    assert gradient(method, target, labels).abs().max() < 1e-5  # likewise


def best(name: str, label_shares: Tensor, concentration: float) -> tuple[Tensor, float]:
    """The concentrations with the least loss for an image whose label is drawn again each time, and that loss."""
    classes = len(label_shares)
    targets = label_concentrations(torch.arange(classes), classes, concentration)
    logits = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([logits], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def loss() -> float:
        search.zero_grad()
        alpha = logits.exp().expand(classes, -1)
        divergence = kl_divergence(targets, alpha) if name == "dpn" else kl_divergence(alpha, targets) / concentration
        value = label_shares.double() @ divergence
        value.backward()
        return value.item()

    search.step(loss)
    return logits.detach().exp(), loss()


def test_disputed_labels_flatten_the_forward_but_not_the_reverse_network() -> None:
    shares = torch.tensor([0.5, 0.5] + 8 * [0.0])
    averaged = torch.tensor([51.0, 51.0] + 8 * [1.0], dtype=torch.float64)
    torch.testing.assert_close(best("rkl", shares, 100.0)[0], averaged, rtol=1e-4, atol=0)  # where the search stops
    assert best("dpn", shares, 100.0)[0].max() < 1


@pytest.mark.parametrize(
    ("name", "concentration", "left"), [("dpn", 100.0, 0.77), ("dpn", 10.0, 0.45), ("rkl", 100.0, 0.21)]
)
def test_share_of_the_loss_that_is_left_when_nine_labels_in_ten_agree(
    name: str, concentration: float, left: float
) -> None:
    ignorant, certain = torch.full((10,), 0.1), torch.tensor([0.9] + 9 * [0.1 / 9])
    ratio = best(name, certain, concentration)[1] / best(name, ignorant, concentration)[1]
    assert ratio == pytest.approx(left, abs=0.005)  # two digits are given


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("concentration", [10.0, 100.0, 1000.0])
def test_bounds_of_the_loss_hold_every_best_alpha(name: str, concentration: float) -> None:
    for candidates in (1, 2, 3, 10):
        shares = (torch.arange(10) < candidates) / candidates
        alpha, _ = best(name, shares, concentration)
        assert alpha.min() > SMALLEST
        assert alpha.max() < made(name, 10).largest * (1 + concentration)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("classes", [2, 10, 200])
def test_gradient_is_finite_and_bounded_and_points_home_for_any_float32_logits(name: str, classes: int) -> None:
    method = made(name, classes, concentration=100.0)
    rows, labels = 500, torch.arange(500) % classes
    far = 60 * torch.rand(rows, classes, generator=torch.Generator().manual_seed(0)) - 30
    slope = rows * gradient(method, far, labels)
    assert slope.isfinite().all()
    surprise = (torch.digamma(torch.tensor(classes + 100.0)) - torch.digamma(torch.tensor(1.0))).item()
    steepest = {"dpn": method.largest * 101 * surprise, "rkl": 1.01 / SMALLEST}[
        name
    ]  # at the upper and at the lower bound
    assert slope.abs().max() < 1.01 * steepest  # terms that vanish beside the steepest one
    right, mistaken = torch.zeros(1, classes), torch.zeros(1, classes)
    right[0, :2], mistaken[0, :2] = torch.tensor([50.0, 9.0]), torch.tensor([9.0, 50.0])
    zero = torch.tensor([0])
    assert method.loss(right, zero) < method.loss(mistaken, zero), "beyond the bound it still counts who is ahead"
    wrong = torch.full((classes, classes), -30.0).fill_diagonal_(30.0)
    swapped = torch.arange(classes).roll(1)
    slope = gradient(method, wrong, swapped)
    assert (slope.gather(1, swapped[:, None]) < 0).all()  # raise the label
    assert (slope.diagonal() > 0).all()  # lower the class that was taken for it


@pytest.mark.parametrize("name", BOTH)
def test_predictions_hold_finite_uncertainties_of_their_own_in_float64(name: str) -> None:
    outputs = one_seed(name, 0).test
    assert set(outputs.own) == {"mutual_information", "differential_entropy"}
    for value in outputs.own.values():
        assert value.shape == (len(outputs),)
        assert value.dtype == torch.float64
        assert value.isfinite().all()
    mean_of_dirichlet = Dirichlet(outputs.logits.double().exp()).mean
    torch.testing.assert_close(mean_of_dirichlet, outputs.probabilities)


@pytest.mark.parametrize(
    ("name", "least"),
    [("dpn", (0.955, 0.95, 0.93)), ("rkl", (0.95, 0.95, 0.93))],  # 97.1, 96.6, 96.4 and 96.0, 96.2, 95.1 when written
)
def test_reaches_on_256_digits_over_three_seeds(name: str, least: tuple[float, float, float]) -> None:
    assert all(found > bar for found, bar in zip(means(three_seeds(name)), least, strict=True))


@pytest.mark.parametrize(("name", "least"), [("dpn", 0.92), ("rkl", 0.92)])  # 94.3 for both when written
def test_mutual_information_tells_noise_from_digits_without_outliers(name: str, least: float) -> None:
    assert mean(noise(run, "mutual_information") for run in three_seeds(name)) > least


def against_photographs(run: TrainedRun) -> float:
    """AUROC of the mutual information for photographs against test digits."""
    photographs = (photo_patches(1500, 8, seed=0) * 255).round().to(torch.uint8)
    parts = [part.own["mutual_information"] for part in (run.test, predict(run.trainer, photographs))]
    return auroc(torch.cat(parts), torch.arange(len(run.test) + 1500) >= len(run.test))


@pytest.mark.parametrize("name", BOTH)
def test_noise_as_outliers_teaches_to_reject_photographs_and_costs_no_accuracy(name: str) -> None:
    without, taught = one_seed(name, 0), train_new(name, 0, noise_set(images("test", 0), 2000, seed=1))
    assert noise(taught, "mutual_information") > 0.999  # 1.000 for both when written, 0.901 and 0.936 without
    assert against_photographs(taught) > 0.97  # 0.995 and 0.989 when written
    assert against_photographs(without) < 0.93  # 0.848 and 0.879 when written
    assert accuracy(taught) > accuracy(without) - 0.01


@pytest.mark.parametrize("name", BOTH)
def test_training_with_outliers_resumes_to_the_same_bits(name: str) -> None:
    def fresh() -> Trainer:
        return trainer_for(name, 0, noise_set(images("test", 0), 100), epochs=2)

    whole, first, second = fresh(), fresh(), fresh()
    for trainer, epochs in ((whole, (0, 1)), (first, (0,))):
        for epoch in epochs:
            list(trainer.epoch_steps(epoch, 0))
    second.load(first.state())
    list(second.epoch_steps(1, 0))
    resumed = second.method.state_dict()
    assert all(torch.equal(value, resumed[key]) for key, value in whole.method.state_dict().items())


@pytest.mark.parametrize("name", BOTH)
def test_options_out_of_range_are_refused_in_a_sentence(name: str) -> None:
    for value in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="concentration must be positive and finite, got"):
            made(name, concentration=value)
    for value in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="outlier_weight must be at least 0 and finite, got"):
            made(name, outlier_weight=value)
