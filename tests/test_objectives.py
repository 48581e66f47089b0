from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsui import DualSupervisedLoss, HeadOutput, MoGMMHead
from dsui.errors import DivergenceError
from dsui.objectives import (
    Objective,
    bounded,
    printed_stable,
    released_regularizer,
    released_scores,
    sign_of_divergence,
)


def batch(classes: int = 4, size: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(size) % classes
    return torch.randn(size, 6, generator=generator) + 0.5 * y[:, None], y


def made_head(components: int = 3, **settings: object) -> MoGMMHead:
    torch.manual_seed(0)
    head = MoGMMHead(6, 4, components, **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        head.log_variances.normal_()
        head.mixing_logits.normal_()
        head.set_class_prior([1, 2, 3, 4])
    return head.double()


def parts(objective: Objective, **settings: object) -> tuple[float, HeadOutput, Tensor, MoGMMHead, DualSupervisedLoss]:
    head, (x, y) = made_head(), batch()
    loss = DualSupervisedLoss(objective, **settings)  # type: ignore[arg-type]
    out = head(x.double())
    return loss(out, y, head).item(), out, y, head, loss


def joint_by_definition(head: MoGMMHead, z: Tensor) -> Tensor:
    """[B, C] ln w_i GMM_i(z) by distributions of PyTorch."""
    components = torch.distributions.Independent(torch.distributions.Normal(head.means, head.variances.sqrt()), 1)
    mixtures = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=head.mixing_logits), components
    )
    densities: Tensor = mixtures.log_prob(z[:, None]) + head.class_prior.log()
    return densities


def test_each_objective_is_its_formula() -> None:
    for objective in get_args(Objective):
        value, out, y, head, loss = parts(objective, rho=2.0, gamma=0.01)
        rows = torch.arange(len(y))
        scores, joint = out.class_scores, out.log_joint
        negative = torch.ones_like(scores, dtype=torch.bool)
        negative[rows, y] = False
        if objective == "bounded":
            ratio = (scores[negative].view(len(y), -1) - scores[rows, y][:, None]).exp().sum(1)
            dual = torch.log1p(2.0 * ratio).mean()
        elif objective == "posterior":
            dual = (2.0 - 3.0 * scores.softmax(1)[rows, y]).mean()
        elif objective == "sgvb":
            dual = -scores[rows, y].mean() * head.temperature / 6
        elif objective == "literal":
            dual = (2.0 * joint[negative].view(len(y), -1).sum(1) - joint[rows, y]).mean()
        elif objective == "printed-stable":
            joint = joint_by_definition(head, out.features)
            dual = (2.0 * joint[negative].view(len(y), -1).mean(1) - joint[rows, y]).mean() / 6
        else:
            dual = (2.0 - 3.0 * released_scores(out, head).softmax(1)[rows, y]).mean()
        reg = released_regularizer(head) if objective == "released" else head.regularizer()
        wanted = F.cross_entropy(out.logits, y) + dual + 0.01 * reg
        assert value == pytest.approx(wanted.item(), rel=1e-9), objective
        assert float(loss.terms["dual"]) == pytest.approx(dual.item(), rel=1e-9), objective
        own = {"own_log_density"} if objective == "literal" else set()
        assert set(loss.terms) == {"cross_entropy", "dual", "regularizer"} | own
        assert not any(term.requires_grad for term in loss.terms.values())


ABLATION = [
    *(({"components": k}, {}) for k in (1, 2, 4, 8)),
    ({"components": 8}, {"regularizer": "kl"}),
    ({"components": 8}, {"regularizer": None}),
    ({"components": 8}, {"objective": "sgvb"}),
    ({"components": 8}, {"objective": "sgvb", "regularizer": None}),
    ({"components": 8}, {"objective": "printed-stable"}),
]


@pytest.mark.parametrize(("head_settings", "loss_settings"), ABLATION)
def test_every_row_of_the_papers_ablation_trains(head_settings: dict[str, int], loss_settings: dict[str, str]) -> None:
    torch.manual_seed(0)
    head, loss = MoGMMHead(6, 4, **head_settings), DualSupervisedLoss(**loss_settings)  # type: ignore[arg-type]
    x, y = batch(size=40)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    values = []
    for _ in range(30):
        value = loss(head(x), y, head)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < values[0] - 0.2
    assert ("regularizer" in loss.terms) == (loss.regularizer is not None)


def test_defaults_are_the_recommended_and_for_literal_the_papers() -> None:
    default, literal, stable = DualSupervisedLoss(), DualSupervisedLoss("literal"), DualSupervisedLoss("printed-stable")
    assert (default.objective, default.rho, default.gamma, default.regularizer) == ("bounded", 1.0, 1e-4, "reg")
    assert (literal.rho, literal.gamma) == (stable.rho, stable.gamma) == (4.0, 1e-4)
    assert MoGMMHead(6, 4).components == 8


scores_and_labels = st.integers(2, 6).flatmap(
    lambda classes: st.lists(
        st.tuples(st.lists(st.floats(-1e30, 1e30), min_size=classes, max_size=classes), st.integers(0, classes - 1)),
        min_size=1,
        max_size=4,
    )
)


@settings(deadline=None)
@given(scores_and_labels, st.sampled_from([0.0, 1e-3, 1.0, 4.0, 1e6]))
def test_bounded_is_never_negative_and_has_finite_gradients_on_extreme_scores(
    rows: list[tuple[list[float], int]], rho: float
) -> None:
    scores = torch.tensor([row for row, _ in rows], dtype=torch.float64, requires_grad=True)
    value = bounded(scores, torch.tensor([label for _, label in rows]), rho)
    value.backward()
    assert scores.grad is not None
    assert value.item() >= 0
    assert bool(value.isfinite() and scores.grad.isfinite().all())
    assert float(scores.grad.abs().max()) <= 1


def test_bounded_at_rho_one_is_cross_entropy_of_the_class_scores() -> None:
    _, out, y, _, loss = parts("bounded")
    assert float(loss.terms["dual"]) == pytest.approx(F.cross_entropy(out.class_scores, y).item(), rel=1e-12)


def test_bounded_without_push_weight_is_zero() -> None:
    _, _, _, _, loss = parts("bounded", rho=0.0)
    assert float(loss.terms["dual"]) == 0


@pytest.mark.parametrize("rho", [0.5, 1.0, 4.0])
def test_push_raises_the_log_ratio_to_every_negative_class(rho: float) -> None:
    """One gradient step on the scores raises l_t - l_i for every i != t, more for the nearer negatives."""
    torch.manual_seed(0)
    scores = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    y = torch.arange(20) % 5
    (grad,) = torch.autograd.grad(bounded(scores, y, rho), scores)
    stepped = (scores - 0.1 * grad).detach()
    before, after = (s.gather(1, y[:, None]) - s for s in (scores.detach(), stepped))
    widened = after - before
    negative = torch.arange(5) != y[:, None]
    assert float(widened[negative].min()) > 0
    for row in range(20):
        order = scores.detach()[row][negative[row]].argsort()
        assert all(a <= b for a, b in pairwise(widened[row][negative[row]][order].tolist()))


def toy() -> tuple[MoGMMHead, Tensor]:
    """Two classes on a line in two dimensions: means at -1 and +1, one sample of class 1 between them."""
    head = MoGMMHead(2, 2, 1, project=False, temperature=1.0).double()
    with torch.no_grad():
        head.means.copy_(torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]]))
        head.mixing_logits.zero_()
    return head, torch.tensor([[0.2, 0.0]], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("objective", ["bounded", "posterior", "sgvb", "literal"])
def test_pull_and_push_have_the_right_sign_in_two_dimensions(objective: Objective) -> None:
    head, x = toy()
    loss = DualSupervisedLoss(objective, gamma=0.0, rho=0.5)
    out, y = head(x), torch.tensor([1])
    loss(out, y, head)
    dual = loss._dual(out, y, head)
    d_x, d_means = torch.autograd.grad(dual, (x, head.means))
    assert float(d_x[0, 0]) < 0, "descent moves the sample towards its own mean at +1"
    assert float(d_means[1, 0, 0]) > 0, "descent pulls its own mean towards the sample"
    if objective == "sgvb":
        assert float(d_means[0].abs().max()) == 0, "without push the other class does not move"
    else:
        assert float(d_means[0, 0, 0]) > 0, "descent pushes the other mean away from the sample"


def test_literal_raises_once_it_diverges() -> None:
    """C = 4 and rho = 4 > 1/3: moving the means away lowers the loss without end."""
    torch.manual_seed(0)
    head, loss = MoGMMHead(6, 4), DualSupervisedLoss("literal")
    x, y = batch(size=40)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)

    def train(steps: int) -> list[float]:
        values = []
        for _ in range(steps):
            value = loss(head(x), y, head)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            values.append(value.item())
        return values

    start = train(20)
    assert start[-1] < start[0]
    with pytest.raises(DivergenceError, match=r'literal objective diverged.*train with objective="bounded"'):
        train(2000)


def test_the_push_of_printed_stable_moves_features_and_no_mixture() -> None:
    head, (x, y) = made_head(), batch()
    x = x.double().requires_grad_()
    with_push, without = (DualSupervisedLoss("printed-stable", rho=rho, gamma=0.0) for rho in (4.0, 0.0))
    parameters = [head.means, head.log_variances, head.mixing_logits]
    gradients = [torch.autograd.grad(loss._dual(head(x), y, head), [x, *parameters]) for loss in (with_push, without)]
    (pushed, *moved), (pulled, *unmoved) = gradients
    assert not torch.allclose(pushed, pulled)
    for ours, theirs in zip(moved, unmoved, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_printed_stable_stays_bounded_where_the_same_terms_run_away() -> None:
    """Features are parameters too, so that pull and push can do with them what they like. Where the push may move the
    mixtures as well, the loss falls without end."""

    def trained(frozen_push: bool) -> tuple[list[float], MoGMMHead]:
        torch.manual_seed(0)
        head, (x, y) = MoGMMHead(6, 4), batch(size=40)
        loss, features = DualSupervisedLoss("printed-stable"), torch.nn.Parameter(x.clone())
        optimizer = torch.optim.Adam([features, *head.parameters()], lr=0.1)
        values = []
        for _ in range(300):
            out = head(features)
            value = loss(out, y, head)
            if not frozen_push:
                value = value - loss._dual(out, y, head) + printed_stable(out.log_joint, out.log_joint, y, 4.0) / 6
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            values.append(value.item())
        return values, head

    values, head = trained(frozen_push=True)
    floor, largest = head.variance_floor, head.variances.max().item()
    length = head.means.norm(dim=2).max().item() / 6**0.5
    lower = 0.5 * math.log(2 * math.pi * floor) - 4.0 * (
        0.5 * math.log(2 * math.pi * largest) + (1 + length) ** 2 / (2 * floor) - math.log(0.25) / 6
    )
    assert min(values) > lower, "the bound of the docstring"
    assert length < 1.5, "means stay where the features are: 1.2 when written"
    assert values[-1] > 1.1 * values[-101], "it levels off: from -85 to -88 when written"
    assert trained(frozen_push=False)[0][-1] < 1000 * values[-1], "the same terms with a push on the mixtures: -500,000"


def test_printed_stable_is_refused_without_the_sphere() -> None:
    x, y = batch()
    head = MoGMMHead(6, 4, project=False)
    with pytest.raises(ValueError, match="printed-stable has a lower bound only on the sphere"):
        DualSupervisedLoss("printed-stable")(head(x), y, head)


def test_literal_tells_that_it_diverges_long_before_it_stops() -> None:
    assert sign_of_divergence([]) is None
    assert sign_of_divergence([-1.4, -1.405]) is None
    assert sign_of_divergence([-1.4, -1.5, -1.2]) is None
    assert "fallen from -1.4 to -1.42 nats per feature dimension" in str(sign_of_divergence([-1.5, -1.4, -1.42]))
    out, y, head, loss = parts("literal")[1:]
    own = joint_by_definition(head, out.features)[torch.arange(len(y)), y].mean() / 6
    assert float(loss.terms["own_log_density"]) == pytest.approx(own.item(), rel=1e-9)


def test_literal_raises_on_a_loss_that_is_not_a_number() -> None:
    head, (x, y) = made_head(), batch()
    out = head(x.double())
    with pytest.raises(DivergenceError, match="diverged"):
        DualSupervisedLoss("literal")(replace(out, component_log_prob=out.component_log_prob * math.nan), y, head)


def test_bad_settings_and_labels_are_named() -> None:
    for arguments, message in (
        ({"objective": "bound"}, "objective must be one of 'bounded'"),
        ({"regularizer": "l2"}, "regularizer must be one of 'reg', 'reg-paper', 'kl', None"),
        ({"rho": -1.0}, "rho must be finite and not negative"),
        ({"gamma": math.inf}, "gamma must be finite and not negative"),
    ):
        with pytest.raises(ValueError, match=message):
            DualSupervisedLoss(**arguments)
    head, (x, y) = made_head(), batch()
    for labels, message in (
        (y + 1, "labels run from 1 to 4; 4 classes need labels 0 to 3"),
        (y.int(), "labels are torch.int32"),
        (y[:-1], r"labels have shape \[8\]"),
    ):
        with pytest.raises(ValueError, match=message):
            DualSupervisedLoss()(head(x.double()), labels, head)


def test_weights_of_samples_are_their_numbers_of_copies() -> None:
    head, (x, y) = made_head(project=False), batch()
    copies = torch.arange(len(y)) % 3
    loss = DualSupervisedLoss("bounded", rho=2.0, gamma=0.01)
    repeated = loss(head(x.double().repeat_interleave(copies, 0)), y.repeat_interleave(copies), head)
    weighted = loss(head(x.double()), y, head, copies / copies.double().mean())
    assert weighted.item() == pytest.approx(repeated.item(), rel=1e-12)  # float64 sums in another order
    for objective in set(get_args(Objective)) - {"bounded"}:
        with pytest.raises(ValueError, match=f"{objective} takes no weights of samples; choose bounded"):
            DualSupervisedLoss(objective)(MoGMMHead(6, 4)(x), y, MoGMMHead(6, 4), torch.ones(len(y)))
