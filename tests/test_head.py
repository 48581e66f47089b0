from __future__ import annotations

import math

import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch import distributions as dist

from dsui import MoGMMHead


def visible(head: MoGMMHead, x: Tensor) -> tuple[Tensor, ...]:
    out = head(x)
    return out.logits, out.log_joint, out.class_scores, out.features, out.norm


def made_head(**settings: object) -> MoGMMHead:
    """A head with nothing left at its symmetric start, in double precision."""
    torch.manual_seed(0)
    arguments: dict[str, object] = {"in_features": 6, "num_classes": 4, "components": 3, **settings}
    head = MoGMMHead(**arguments).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in (head.means, head.log_variances, head.mixing_logits):
            parameter.normal_()
        head.set_class_prior(torch.arange(1.0, head.num_classes + 1))
    return head


def mixtures(head: MoGMMHead) -> dist.MixtureSameFamily:
    components = dist.Independent(dist.Normal(head.means, head.log_variances.exp().sqrt()), 1)
    return dist.MixtureSameFamily(dist.Categorical(logits=head.mixing_logits), components)


def features(head: MoGMMHead, batch: int = 7, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(batch, head.in_features, generator=generator, dtype=head.means.dtype) + 1


@pytest.mark.parametrize("training", [True, False])
def test_output_is_what_the_formulas_say(training: bool) -> None:
    head = made_head(temperature=2.5).train(training)
    x = features(head)
    z = head.project(x)
    out = head(x)
    log_gmm = mixtures(head).log_prob(z[:, None])
    weights = torch.einsum("ck,ckm->cm", head.mixing_logits.softmax(1), head.means)
    log_prior = torch.log(torch.arange(1.0, 5.0, dtype=torch.float64) / 10)
    components = dist.Independent(dist.Normal(head.means, head.log_variances.exp().sqrt()), 1).log_prob(
        z[:, None, None]
    )
    tempered = torch.logsumexp(head.mixing_logits.log_softmax(1) + components / 2.5, -1)
    torch.testing.assert_close(out.features, z)
    torch.testing.assert_close(head.class_weights, weights)
    torch.testing.assert_close(out.logits, head.logit_scale * z @ weights.T)
    # omega is stored in float32 until the module is made double
    torch.testing.assert_close(out.log_joint, log_prior + log_gmm, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(out.class_scores, log_prior + tempered, rtol=1e-6, atol=1e-6)


def test_log_prob_and_component_log_prob_agree_with_the_output() -> None:
    head = made_head().eval()
    x = features(head)
    torch.testing.assert_close(head.log_prob(x), head(x).log_joint.logsumexp(1))
    log_gmm = (head.component_log_prob(x) + head.mixing_logits.log_softmax(1)).logsumexp(2)
    torch.testing.assert_close(log_gmm + head.class_prior.log(), head(x).log_joint)


def test_features_lie_on_the_sphere_and_the_norm_is_kept() -> None:
    head = made_head()
    x = features(head, batch=50)
    out = head(x)
    h = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(out.norm, h.norm(dim=1))
    torch.testing.assert_close(out.features, math.sqrt(6) * h / h.norm(dim=1, keepdim=True), rtol=1e-3, atol=1e-3)
    # the epsilon shortens z by 5e-7 |sqrt(M) / h|^2
    torch.testing.assert_close(
        out.features.norm(dim=1), torch.full((50,), math.sqrt(6), dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_a_feature_at_zero_has_finite_values_and_gradients() -> None:
    head = made_head().eval()
    x = torch.zeros(2, 6, dtype=torch.float64, requires_grad=True)
    out = head(x)
    (out.logits.sum() + out.class_scores.sum() + out.log_joint.sum()).backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert float(out.norm.detach().abs().max()) == 0


def test_without_projection_features_pass_through_and_the_plain_tie_has_scale_one() -> None:
    head = made_head(project=False, logit_scale=None)
    x = features(head)
    torch.testing.assert_close(head(x).features, x)
    torch.testing.assert_close(head(x).logits, x @ head.class_weights.T)
    torch.testing.assert_close(head(x).norm, x.norm(dim=1))


def test_densities_integrate_to_one_in_two_dimensions() -> None:
    head = made_head(in_features=2, project=False).eval()
    with torch.no_grad():
        head.log_variances.clamp_(-1, 1)
        axis = torch.linspace(-12, 12, 481, dtype=torch.float64)
        grid = torch.cartesian_prod(axis, axis)
        cell = float(axis[1] - axis[0]) ** 2
        out = head(grid)
        assert float(head.log_prob(grid).exp().sum() * cell) == pytest.approx(1, abs=1e-6)  # float32 omega
        per_class = (out.log_joint - head.class_prior.log()).exp().sum(0) * cell
        torch.testing.assert_close(per_class, torch.ones(4, dtype=torch.float64), rtol=1e-6, atol=0)


def test_permuting_components_changes_nothing_and_permuting_classes_permutes_the_outputs() -> None:
    head, other = made_head().eval(), made_head().eval()
    x, shuffle, order = features(head), torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2])
    with torch.no_grad():
        for name in ("means", "log_variances", "mixing_logits"):
            getattr(other, name).copy_(getattr(head, name)[:, shuffle])
        for ours, theirs in zip(visible(head, x), visible(other, x), strict=True):
            torch.testing.assert_close(ours, theirs)
        for name in ("means", "log_variances", "mixing_logits", "class_prior"):
            getattr(other, name).copy_(getattr(head, name)[order])
        for name in ("logits", "log_joint", "class_scores"):
            torch.testing.assert_close(getattr(head(x), name)[:, order], getattr(other(x), name))


@pytest.mark.parametrize("training", [True, False])
def test_autocast_changes_nothing(training: bool) -> None:
    torch.manual_seed(0)
    head = MoGMMHead(64, 5, 2).train(training)
    x = torch.randn(16, 64)
    plain = visible(head, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = visible(head, x)
    for ours, theirs in zip(plain, cast, strict=True):
        assert torch.equal(ours, theirs)


def test_whole_head_passes_gradcheck() -> None:
    head = made_head().train()
    x = features(head).requires_grad_()
    parameters = [x, *head.parameters()]

    def outputs(*_: Tensor) -> tuple[Tensor, ...]:
        return visible(head, x)

    assert torch.autograd.gradcheck(outputs, parameters)


def test_evaluation_is_exact_and_training_is_fast_by_default() -> None:
    torch.manual_seed(0)
    head, x = MoGMMHead(64, 5, 2), torch.randn(16, 64)
    assert head(x).log_joint.dtype == torch.float32
    assert head.eval()(x).log_joint.dtype == torch.float64
    assert head(x).logits.dtype == torch.float32
    head.evaluation_precision = "fast"
    assert head(x).log_joint.dtype == torch.float32
    assert MoGMMHead(64, 5, 2, precision="exact")(x).log_joint.dtype == torch.float64


def test_only_forward_in_training_moves_the_running_statistics() -> None:
    torch.manual_seed(0)
    head = MoGMMHead(8, 3, 2)
    x, y = torch.randn(30, 8) + 2, torch.arange(30) % 3
    before = {name: value.clone() for name, value in head.state_dict().items() if "running" in name}

    def moved() -> bool:
        return any(not torch.equal(value, head.state_dict()[name]) for name, value in before.items())

    head.project(x), head.log_prob(x), head.component_log_prob(x), head.initialize(x, y), head.refit(x, y)
    head.eval()(x)
    assert not moved()
    head.train()(x)
    assert moved()
    oracle = nn.BatchNorm1d(8, affine=False)
    oracle(x)
    assert oracle.running_mean is not None
    torch.testing.assert_close(head.projection.running_mean, oracle.running_mean)  # type: ignore[union-attr]


def test_exact_training_moves_the_running_statistics_too() -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 40) + 2
    fast, exact = MoGMMHead(40, 3, 2), MoGMMHead(40, 3, 2, precision="exact")
    fast(x), exact(x)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(fast.projection, name), getattr(exact.projection, name))


@pytest.mark.parametrize(("classes", "components"), [(2, 1), (3, 1), (1000, 2)])
def test_works_from_two_to_a_thousand_classes(classes: int, components: int) -> None:
    head = MoGMMHead(16, classes, components)
    out = head(torch.randn(4, 16))
    assert out.logits.shape == out.class_scores.shape == (4, classes)
    head.eval()
    for batch in (0, 1):
        assert head(torch.randn(batch, 16)).log_joint.shape == (batch, classes)


def test_the_state_dict_is_the_whole_state() -> None:
    head = made_head(temperature=3.0)
    head(features(head))
    twin = MoGMMHead(6, 4, 3).double()
    twin.load_state_dict(head.state_dict())
    x = features(head, seed=5)
    for ours, theirs in zip(visible(head.eval(), x), visible(twin.eval(), x), strict=True):
        assert torch.equal(ours, theirs)
    assert head.state_dict()["means"].shape == head.state_dict()["log_variances"].shape == (4, 3, 6)


def test_plug_in_density_is_the_expected_one_up_to_half_the_dimension() -> None:
    """E_q ln N(z; mu, b) = ln N(z; a, b) - M/2 for q = N(a, b), by sampling q."""
    torch.manual_seed(0)
    a, b, z = torch.randn(5), torch.rand(5) + 0.5, torch.randn(5)
    samples = a + b.sqrt() * torch.randn(200_000, 5)
    expected = dist.Normal(samples, b.sqrt()).log_prob(z).sum(1)
    plug_in = dist.Normal(a, b.sqrt()).log_prob(z).sum() - 5 / 2
    assert float(expected.mean()) == pytest.approx(float(plug_in), abs=4 * float(expected.std()) / math.sqrt(200_000))


def test_regularizers_equal_torch_distributions() -> None:
    head = made_head()
    eta, omega = head.mixing_weights, head.class_prior
    posterior = dist.Normal(head.means, head.log_variances.exp().sqrt())
    gaussian = dist.kl_divergence(posterior, dist.Normal(torch.zeros(6).double(), torch.ones(6).double())).sum(-1)
    uniform = dist.Categorical(logits=torch.zeros(4, 3, dtype=torch.float64))
    categorical = dist.kl_divergence(dist.Categorical(logits=head.mixing_logits), uniform)
    reg = (omega * (categorical + (eta * gaussian).sum(1))).sum()
    torch.testing.assert_close(head.regularizer("reg"), reg)
    torch.testing.assert_close(head.regularizer("reg-paper"), reg)
    torch.testing.assert_close(head.regularizer("kl"), categorical.sum() + gaussian.sum())


def test_reg_detaches_the_multiplier_and_reg_paper_does_not() -> None:
    head = made_head()
    eta = head.mixing_logits.softmax(1)
    categorical = (head.class_prior * (eta * (3 * eta).log()).sum(1)).sum()
    (wanted,) = torch.autograd.grad(categorical, head.mixing_logits)
    (reg,) = torch.autograd.grad(head.regularizer("reg"), head.mixing_logits)
    (paper,) = torch.autograd.grad(head.regularizer("reg-paper"), head.mixing_logits)
    torch.testing.assert_close(reg, wanted)
    assert float((paper - wanted).norm()) > 0.1 * float(wanted.norm())


def test_reg_lifts_a_variance_that_fell_through_the_floor() -> None:
    head = made_head(variance_floor=1e-2)
    with torch.no_grad():
        head.log_variances.fill_(-9.0)
    head.regularizer().backward()
    assert head.log_variances.grad is not None
    assert float(head.log_variances.grad.max()) < 0
    assert float(head.variances.detach().min()) == 1e-2


def clumps(classes: int, width: int, per_class: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    centres = 4 * torch.randn(classes, 2, width, generator=generator)
    y = torch.arange(classes).repeat(per_class)
    return centres[y, torch.arange(len(y)) // classes % 2] + torch.randn(len(y), width, generator=generator), y


@pytest.mark.parametrize("project", [True, False])
def test_initialize_finds_mixtures_as_likely_as_scikit_learn(project: bool) -> None:
    x, y = clumps(classes=3, width=5, per_class=80)
    head = MoGMMHead(5, 3, 2, project=project).eval()
    z = head.project(x).double()
    head.initialize(x, y)
    with torch.no_grad():
        ours = head(x).log_joint - head.class_prior.log()
    for label in range(3):
        own = z[y == label].numpy()
        oracle = (
            GaussianMixture(2, covariance_type="diag", n_init=5, random_state=0, reg_covar=1e-3).fit(own).score(own)
        )
        # both stop within 1e-3 nats of an optimum; the floor and reg_covar differ by at most the rest
        assert float(ours[y == label, label].mean()) > oracle - 0.02
    assert float((ours.argmax(1) == y).double().mean()) > 0.95


def test_initialize_is_repeatable_and_follows_its_generator() -> None:
    x, y = clumps(classes=3, width=5, per_class=40)
    heads = [MoGMMHead(5, 3, 4) for _ in range(3)]
    heads[0].initialize(x, y)
    heads[1].initialize(x, y)
    heads[2].initialize(x, y, generator=torch.Generator().manual_seed(7))
    assert torch.equal(heads[0].means, heads[1].means)
    assert not torch.equal(heads[0].means, heads[2].means)


def test_a_class_of_few_samples_starts_with_fewer_components_and_the_variance_of_all() -> None:
    x, y = clumps(classes=4, width=5, per_class=40)
    kept = torch.cat([(y == label).nonzero()[:count, 0] for label, count in enumerate((40, 7, 1, 0))])
    x, y = x[kept], y[kept]
    head = MoGMMHead(5, 4, 4, project=False).eval()
    before = head.means[3].clone()
    with torch.no_grad():
        head.initialize(x, y)
    assert (head.mixing_weights > 0.01).sum(1).tolist() == [4, 3, 1, 4], "7 // 2 = 3"
    pooled = sum((x[y == c].double() - x[y == c].double().mean(0)).square().sum(0) for c in range(3)) / len(y)
    assert isinstance(pooled, torch.Tensor)
    for label in (1, 2):
        torch.testing.assert_close(head.variances[label], pooled.float().expand(4, 5))  # float32 against float64
    assert not torch.allclose(head.variances[0], pooled.float())
    torch.testing.assert_close(head.means[2, 0], x[y == 2][0])
    assert torch.equal(head.means[3], before)
    assert head(torch.cat([x, x + 1])).log_joint.isfinite().all()


def test_refit_raises_the_likelihood_and_moves_the_tied_classifier() -> None:
    x, y = clumps(classes=3, width=5, per_class=80)
    head = MoGMMHead(5, 3, 2).eval()
    own = torch.arange(len(y)), y
    before, weights = head(x).log_joint[own].mean(), head.class_weights.clone()
    head.refit(x, y)
    assert (head(x).log_joint[own].mean() - before).item() > 1
    assert not torch.equal(weights, head.class_weights)


BAD_CONSTRUCTION = [
    ({"components": 0}, "components must be at least 1, got 0"),
    ({"num_classes": 1}, "num_classes must be at least 2"),
    ({"in_features": 0}, "in_features must be at least 1"),
    ({"temperature": 0.0}, "temperature must be positive"),
    ({"variance_floor": -1.0}, "variance_floor must be positive"),
    ({"logit_scale": "fixed"}, "logit_scale must be 'learned', a number to start from, or None, got 'fixed'"),
    ({"logit_scale": 0.0}, "logit_scale must be positive"),
    ({"covariance": "full"}, "covariance must be one of 'diagonal'"),
    ({"precision": "double"}, "precision must be one of"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_CONSTRUCTION)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made_head(**settings)


def test_bad_features_are_named() -> None:
    head = MoGMMHead(6, 4, 2)
    for bad, message in (
        (torch.zeros(3, 5), r"features have shape \[3, 5\]; this head takes \[batch, 6\]"),
        (torch.zeros(6), r"features have shape \[6\]"),
        (torch.zeros(3, 6, dtype=torch.int64), "features are torch.int64"),
        (torch.full((3, 6), math.nan), "3 of 3 feature vectors hold NaN or infinity"),
        (torch.randn(1, 6), "a training batch of 1 cannot be normalised"),
    ):
        with pytest.raises(ValueError, match=message):
            head(bad)


def test_bad_data_for_initialize_are_named() -> None:
    head, x = MoGMMHead(6, 3, 2), torch.randn(6, 6)
    for y, message in (
        (torch.tensor([0, 0, 0, 1, 1, 1]), "class 2 has 0 samples"),
        (torch.tensor([0, 0, 0, 1, 1, 2]), "class 2 has 1 samples"),
        (torch.tensor([0, 0, 1, 1, 2, 3]), "labels run from 0 to 3; 3 classes need labels 0 to 2"),
        (torch.tensor([0, 0, 1, 1, 2, -1]), "labels run from -1 to 2"),
        (torch.tensor([0, 0, 1, 1, 2]), r"labels have shape \[5\]"),
        (torch.tensor([0.0, 0, 1, 1, 2, 2]), "labels are torch.float32"),
    ):
        for method in (head.initialize, head.refit) if "samples" not in message else (head.refit,):
            with pytest.raises(ValueError, match=message):
                method(x, y)
    x[0, 0] = math.nan
    with pytest.raises(ValueError, match="1 of 6 feature vectors hold NaN"):
        head.initialize(x, torch.tensor([0, 0, 1, 1, 2, 2]))


def test_bad_class_counts_are_named() -> None:
    head = MoGMMHead(6, 3, 2)
    for counts, message in (([1.0, 2.0], "this head has 3 classes"), ([1.0, 0.0, 2.0], "must be positive")):
        with pytest.raises(ValueError, match=message):
            head.set_class_prior(counts)


def test_a_state_dict_of_another_shape_is_refused_in_one_sentence() -> None:
    model = nn.Sequential(nn.Linear(3, 6), MoGMMHead(6, 3, 2))
    other = nn.Sequential(nn.Linear(3, 6), MoGMMHead(6, 5, 2))
    with pytest.raises(ValueError, match=r"holds means of shape \[5, 2, 6\] and this head has \[3, 2, 6\]"):
        model.load_state_dict(other.state_dict())
