"""What every family keeps: it is a density, its derivatives are right, and its EM climbs."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import iv
from scipy.stats import multivariate_normal, multivariate_t
from torch import Tensor

from dsui.density import Precision
from dsui.families import registry
from dsui.families.expectation_maximisation import step
from dsui.families.family import Components, Family

FAMILIES = registry.names()
FLOOR = 1e-3


def made(name: str, classes: int = 2, components: int = 2, size: int = 4, seed: int = 0) -> tuple[Family, Components]:
    """A family and components with random parameters, in float64."""
    torch.manual_seed(seed)
    settings = {"rank": min(2, size - 1)} if name == "gaussian-low-rank" else {}
    family = registry.find(name)(classes, components, size, FLOOR, **settings).double()
    for each in family.parameters():
        each.data += 0.3 * torch.randn_like(each)
    shape = (classes, components, size)
    weights = torch.rand(shape[:2], dtype=torch.float64).softmax(1)
    log_variances = 0.5 * torch.randn(shape, dtype=torch.float64) if family.has_variances else None
    return family, Components(weights, torch.randn(shape, dtype=torch.float64), log_variances)


def on_sphere(count: int, size: int, seed: int = 1) -> Tensor:
    z = torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    length: Tensor = z.norm(dim=1, keepdim=True)
    return math.sqrt(size) * z / length


def log_prob(family: Family, z: Tensor, components: Components, precision: Precision = "exact") -> Tensor:
    return family.log_prob(z, components.means, components.log_variances, precision)


def covariance(family: Family, components: Components, place: tuple[int, int]) -> Tensor:
    """What the family's parameters say of one component's covariance, or of its scale matrix."""
    if components.log_variances is None:
        whitening = family.whitening
        assert isinstance(whitening, Tensor)
        factor = whitening.tril(-1) + torch.diag(whitening.diagonal().exp())
        inverse: Tensor = torch.linalg.inv(factor @ factor.T)
        return inverse
    diagonal = torch.diag(components.log_variances[place].exp())
    directions = getattr(family, "directions", None)
    return diagonal if directions is None else diagonal + directions[place] @ directions[place].T


@pytest.mark.parametrize("name", ["gaussian", "gaussian-tied", "gaussian-low-rank", "student-t"])
@pytest.mark.parametrize("size", [2, 7, 40])
def test_densities_are_those_of_scipy(name: str, size: int) -> None:
    family, components = made(name, size=size)
    z = torch.randn(5, size, dtype=torch.float64) * 2
    found = log_prob(family, z, components).detach()
    for place in ((0, 0), (1, 1)):
        mean, spread = components.means[place].numpy(), covariance(family, components, place).detach().numpy()
        oracle = (
            multivariate_t(mean, spread, df=family.freedom.detach()[place].item())  # type: ignore[operator]
            if name == "student-t"
            else multivariate_normal(mean, spread)
        )
        # both are float64; the condition of the covariances is below 1e3
        torch.testing.assert_close(found[:, *place], torch.tensor(oracle.logpdf(z.numpy())), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_von_mises_fisher_has_its_textbook_density(size: int) -> None:
    family, components = made("von-mises-fisher", size=size)
    z = on_sphere(6, size)
    kappa = family.concentration.detach()[0, 1].item()  # type: ignore[operator]
    mean = components.means[0, 1] / components.means[0, 1].norm()
    order = size / 2 - 1
    constant = kappa**order / ((2 * math.pi) ** (size / 2) * iv(order, kappa)) * size ** (-(size - 1) / 2)
    expected = math.log(constant) + kappa * (z @ mean) / math.sqrt(size)
    torch.testing.assert_close(log_prob(family, z, components).detach()[:, 0, 1], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_densities_integrate_to_one_in_two_dimensions(name: str) -> None:
    family, components = made(name, size=2)
    if family.on_sphere:
        angles = torch.linspace(0, 2 * math.pi, 4001, dtype=torch.float64)[:-1]
        z, cell = math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], 1), math.sqrt(2) * 2 * math.pi / 4000
        tail = 1e-8  # the trapezoidal rule on a circle converges exponentially
    else:
        side = torch.linspace(-60, 60, 1201, dtype=torch.float64)
        z, cell = torch.cartesian_prod(side, side), 0.1**2
        tail = 1e-2 if name == "student-t" else 1e-6  # beyond the square: heavy tails of some thirty degrees of freedom
    total = log_prob(family, z, components).exp().sum(0) * cell
    torch.testing.assert_close(total, torch.ones_like(total), rtol=tail, atol=tail)


@pytest.mark.parametrize("name", FAMILIES)
def test_fast_densities_agree_with_exact_ones(name: str) -> None:
    family, components = made(name, size=256)
    z = on_sphere(20, 256)
    exact, fast = log_prob(family, z, components), log_prob(family.float(), z.float(), as_float(components), "fast")
    assert fast.dtype == torch.float32
    # float32 products of 256 terms; the families' docstrings have the measured bounds
    torch.testing.assert_close(fast.double(), exact, rtol=1e-4, atol=1e-2)


def as_float(components: Components) -> Components:
    log_variances = None if components.log_variances is None else components.log_variances.float()
    return Components(components.weights.float(), components.means.float(), log_variances)


@pytest.mark.parametrize("name", FAMILIES)
def test_exact_densities_of_float32_parameters_have_the_digits_of_float64(name: str) -> None:
    family, components = made(name, size=6)
    family, components, z = family.float(), as_float(components), on_sphere(5, 6).float()
    if components.log_variances is not None:
        components.log_variances[0, 0] = -5  # small variances, above the floor
    found = log_prob(family, z, components)
    as_double = Components(*(None if each is None else each.double() for each in components))  # type: ignore[arg-type]
    torch.testing.assert_close(found, log_prob(family.double(), z.double(), as_double), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "beyond"),
    [("student-t", 0.5), ("von-mises-fisher", 12.0), ("gaussian-tied", 4.0), ("gaussian-low-rank", -8.0)],
)
def test_a_parameter_beyond_its_bound_comes_back_where_the_samples_say_so(name: str, beyond: float) -> None:
    """Samples are neither heavy in their tails nor near a mean, so that every bound is too far."""
    family, components = made(name)
    z = on_sphere(20, 4)
    parameter = next(family.parameters()) if components.log_variances is None else components.log_variances
    if name == "student-t":
        parameter = family.log_freedom  # type: ignore[assignment]
    parameter.requires_grad_()
    with torch.no_grad():
        (parameter.diagonal() if name == "gaussian-tied" else parameter).fill_(beyond)
    value = log_prob(family, z, components).mean()
    back, further = (torch.autograd.grad(sign * value, parameter, retain_graph=True)[0] for sign in (-1, 1))
    if name == "gaussian-tied":
        back, further = back.diagonal(), further.diagonal()
    inwards = -1 if name in ("student-t", "gaussian-low-rank") else 1
    assert (inwards * back > 0).all()
    assert (further == 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_component_of_weight_zero_explains_nothing_even_where_it_fits_best(name: str) -> None:
    family, components = made(name)
    if components.log_variances is not None:
        components.log_variances[0, 0] = 12.0  # so wide that the other is likelier by far
    components = components._replace(weights=torch.tensor([[1.0, 0.0], [0.5, 0.5]]).double())
    samples = [components.means[0, 1].repeat(5, 1), on_sphere(40, 4, 3)]
    after, _ = step(family, components, samples)
    assert after.weights[0].tolist() == [1.0, 0.0]
    torch.testing.assert_close(after.means[0, 1], components.means[0, 1], rtol=0, atol=0)
    assert all(each.isfinite().all() for each in (*after[:2], *family.parameters()))


@pytest.mark.parametrize("name", FAMILIES)
def test_density_and_divergence_pass_gradcheck(name: str) -> None:
    family, components = made(name, size=3)
    z = on_sphere(2, 3).requires_grad_()
    inputs = [components.means, *([] if components.log_variances is None else [components.log_variances])]
    for each in inputs:
        each.requires_grad_()

    def both(z: Tensor, means: Tensor, log_variances: Tensor | None = None, *_: Tensor) -> tuple[Tensor, Tensor]:
        return family.log_prob(z, means, log_variances), family.divergence(means, log_variances)

    own = tuple(family.parameters())
    padding = () if components.log_variances is not None else (None,)
    assert torch.autograd.gradcheck(both, (z, *inputs, *padding, *own))
    assert torch.autograd.gradgradcheck(both, (z, *inputs, *padding, *own), atol=1e-4)  # differences of differences


@pytest.mark.parametrize("name", FAMILIES)
def test_permuted_components_and_classes_permute_densities(name: str) -> None:
    family, components = made(name)
    z, order = on_sphere(5, 4), [1, 0]
    expected = log_prob(family, z, components)[:, order][:, :, order]
    for each in family.parameters():
        if each.shape[:2] == components.means.shape[:2]:
            each.data = each.data[order][:, order]
    moved = Components(*(None if each is None else each[order][:, order] for each in components))  # type: ignore[arg-type]
    torch.testing.assert_close(log_prob(family, z, moved), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_em_never_lowers_the_likelihood(name: str) -> None:
    family, components = made(name, classes=2, components=3)
    samples = [on_sphere(60, 4, seed) + 0.2 * seed * (not family.on_sphere) for seed in (2, 3)]
    likelihoods = []
    for _ in range(12):
        components, likelihood = step(family, components, samples)
        likelihoods.append(likelihood)
    steps = torch.tensor(likelihoods).diff()
    assert (steps > -1e-9).all(), likelihoods  # rounding alone
    assert likelihoods[-1] > likelihoods[0] + 0.01


@pytest.mark.parametrize("name", FAMILIES)
def test_a_component_that_explains_nothing_stays_as_it_is(name: str) -> None:
    family, components = made(name)
    far = components.means.clone()
    far[0, 1] = 1e4
    if family.on_sphere:
        components = components._replace(weights=torch.tensor([[1.0, 0.0], [0.5, 0.5]]).double())
    else:
        components = components._replace(means=far)
    before = components.means[0, 1].clone()
    after, _ = step(family, components, [on_sphere(40, 4, 2), on_sphere(40, 4, 3)])
    assert all(each.isfinite().all() for each in (*after[:2], *family.parameters()))
    if after.weights[0, 1] == 0:
        torch.testing.assert_close(after.means[0, 1], before)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_divergence_is_that_of_samples(name: str) -> None:
    """KL = E ln p - E ln prior, over a million draws of p by inverse or composition."""
    family, components = made(name, classes=1, components=1, size=2)
    if name == "von-mises-fisher":
        angles = torch.linspace(0, 2 * math.pi, 20001, dtype=torch.float64)[:-1]
        z = math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], 1)
        density = log_prob(family, z, components)[:, 0, 0]
        cell = math.sqrt(2) * 2 * math.pi / 20000
        expected = (density.exp() * (density + math.log(2 * math.pi * math.sqrt(2)))).sum() * cell
        tolerance = 1e-8
    else:
        side = torch.linspace(-40, 40, 1601, dtype=torch.float64)
        z = torch.cartesian_prod(side, side)
        density = log_prob(family, z, components)[:, 0, 0]
        prior = -0.5 * z.square().sum(1) - math.log(2 * math.pi)
        expected = (density.exp() * (density - prior)).sum() * 0.05**2
        tolerance = 2e-2 if name == "student-t" else 1e-6  # what lies beyond the square
    found = family.divergence(components.means, components.log_variances)[0, 0]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_class_without_samples_keeps_its_mixture(name: str) -> None:
    family, components = made(name)
    after, _ = step(family, components, [on_sphere(40, 4, 2), on_sphere(0, 4)])
    torch.testing.assert_close(after.weights[1], components.weights[1])
    torch.testing.assert_close(after.means[1], components.means[1])
    assert all(each.isfinite().all() for each in (*after[:2], *family.parameters()))


def test_an_unknown_family_is_answered_by_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean student-t"):
        registry.find("student")
