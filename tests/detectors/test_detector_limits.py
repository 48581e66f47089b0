"""Detectors against oracles, and where each of them becomes another one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, MultivariateNormal, Normal

from dsui import scores
from dsui.detectors import detector as detector_module
from dsui.detectors import em_mixture, knn, react
from dsui.detectors.ash import ASH
from dsui.detectors.em_mixture import EMMixture
from dsui.detectors.energy import Energy
from dsui.detectors.gda import GDA
from dsui.detectors.gen import GEN
from dsui.detectors.kl_matching import KLMatching
from dsui.detectors.knn import KNN
from dsui.detectors.mahalanobis import Mahalanobis
from dsui.detectors.max_logit import MaxLogit
from dsui.detectors.react import ReAct, quantile
from dsui.detectors.registry import build, names
from dsui.detectors.relative_mahalanobis import RelativeMahalanobis
from dsui.detectors.she import SHE
from dsui.detectors.vim import ViM, default_dimension
from dsui.outputs import Outputs
from tests.support.toy_features import BIAS, CLASSES, WEIGHT, WIDTH, classified, faint, in_domain, unseen

TRAIN = in_domain(60, seed=0)
TEST = Outputs.concatenated([classified(in_domain(8, 1).features), faint(40), unseen(40)])
LABELS = torch.arange(CLASSES).repeat_interleave(60)
ENERGY = scores.energy(TEST.logits)


def assert_close(found: Tensor, expected: Tensor | np.ndarray, digits: float = 1e-10) -> None:
    """Float64, sums in another order; ten digits unless a test says why not."""
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), rtol=digits, atol=digits)


def test_energy_is_the_score_of_that_name_and_max_logit_its_cold_limit() -> None:
    assert torch.equal(Energy().score(TEST), ENERGY)
    assert_close(Energy(1e-3).score(TEST), MaxLogit().score(TEST), 1e-2)  # T ln C is the most they differ


def test_gen_is_its_formula_over_the_likeliest_classes() -> None:
    p = np.sort(TEST.probabilities.numpy(), 1)[:, ::-1][:, :3]
    assert_close(GEN(gamma=0.3, top=3).score(TEST), (p**0.3 * (1 - p) ** 0.3).sum(1))


def test_gen_tells_saturated_samples_apart() -> None:
    gaps = torch.tensor([40.0, 100.0, 400.0], dtype=torch.float64)  # 1 - p is 0 in float64 for all of them
    found = GEN().score(Outputs(torch.zeros(3, 1), torch.stack([gaps, torch.zeros(3)], 1)))
    assert_close(found, 2 * (-0.1 * gaps).exp())


def test_kl_matching_is_the_least_divergence_by_scipy() -> None:
    logits = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits[:, 3] -= 100  # nothing is predicted as the last class, whose template is then one-hot
    train = Outputs(torch.zeros(50, 1), logits)
    p, predicted = train.probabilities.numpy(), train.predictions.numpy()
    templates = [p[predicted == c].mean(0) for c in range(3)] + [np.eye(4)[3]]
    expected = np.min([[stats.entropy(row, t) for t in templates] for row in p], 1)
    fitted = KLMatching().fit(train)
    assert_close(fitted.score(train), expected)
    sure = Outputs(torch.zeros(1, 1), torch.tensor([[0, 0, 0, 1e4]], dtype=torch.float64))
    assert float(fitted.score(sure)) == 0


def test_knn_is_scikit_learns_distance_and_two_minus_two_cosines() -> None:
    bank, query = normalize(TRAIN.features.numpy()), normalize(TEST.features.numpy())
    distance, index = NearestNeighbors(n_neighbors=7, algorithm="brute").fit(bank).kneighbors(query)
    found = KNN(k=7).fit(TRAIN).score(TEST)
    assert_close(found, distance[:, -1] ** 2)
    assert_close(found, 2 - 2 * (query * bank[index[:, -1]]).sum(1))


def test_mahalanobis_is_scikit_learns() -> None:
    z = TRAIN.features.numpy()
    means = np.stack([z[c == LABELS].mean(0) for c in range(CLASSES)])
    oracle = EmpiricalCovariance(assume_centered=True).fit(z - means[LABELS])
    expected = np.min([oracle.mahalanobis(TEST.features.numpy() - mean) for mean in means], 0)
    assert_close(Mahalanobis(shrinkage=0).fit(TRAIN).score(TEST), expected, 1e-8)  # its inverse against our factor
    shrunk = Mahalanobis().fit(TRAIN).score(TEST)
    assert_close(shrunk, expected, 1e-4)  # 1e-6 of the mean variance, beside variances not below a hundredth of it


def test_relative_mahalanobis_is_its_formula() -> None:
    z, x = TRAIN.features.numpy(), TEST.features.numpy()
    means = np.stack([z[c == LABELS].mean(0) for c in range(CLASSES)])

    def distances(samples: np.ndarray, rest: np.ndarray) -> np.ndarray:
        covariance = rest.T @ rest / len(rest)
        covariance += 1e-3 * np.trace(covariance) / WIDTH * np.eye(WIDTH)
        found: np.ndarray = np.einsum("nm,mk,nk->n", samples, np.linalg.inv(covariance), samples)
        return found

    nearest = np.min([distances(x - mean, z - means[LABELS]) for mean in means], 0)
    expected = nearest - distances(x - z.mean(0), z - z.mean(0))
    assert_close(RelativeMahalanobis(shrinkage=1e-3).fit(TRAIN).score(TEST), expected, 1e-8)


def test_gda_of_one_class_is_half_the_mahalanobis_distance_and_a_constant() -> None:
    train, test = (Outputs(part.features, part.logits[:, :1], torch.zeros(len(part)).long()) for part in (TRAIN, TEST))
    rest = GDA().fit(train).score(test) - Mahalanobis().fit(train).score(test) / 2
    assert float(rest.std()) < 1e-9 * float(rest.abs().mean())  # float64


@pytest.mark.parametrize("per_class", [WIDTH + 1, WIDTH])
def test_gda_has_full_covariances_only_with_more_samples_than_features(per_class: int) -> None:
    train = in_domain(per_class)
    assert train.labels is not None
    train = train.select(torch.cat([torch.arange(len(train)), torch.arange(20)]))  # class 0 is more frequent
    assert train.labels is not None
    groups = [train.features[train.labels == c] for c in range(CLASSES)]
    means = torch.stack([group.mean(0) for group in groups])
    centred = [group - mean for group, mean in zip(groups, means, strict=True)]
    covariances = torch.stack([c.T @ c / len(c) for c in centred])
    if per_class <= WIDTH:
        everything = torch.cat(centred)
        covariances = (everything.T @ everything / len(everything)).expand_as(covariances)
    spread = covariances.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    gaussians = MultivariateNormal(means, covariances + 1e-2 * spread * torch.eye(WIDTH))
    weights = torch.tensor([float(len(group)) for group in groups], dtype=torch.float64)
    expected = -MixtureSameFamily(Categorical(weights), gaussians).log_prob(TEST.features)
    assert_close(GDA(shrinkage=1e-2).fit(train).score(TEST), expected, 1e-8)  # other factorisations


def test_em_mixture_of_one_component_is_a_diagonal_gaussian() -> None:
    groups = [TRAIN.features[c == LABELS] for c in range(CLASSES)]
    groups[0] = groups[0][:25]  # less frequent
    means, deviations = torch.stack([g.mean(0) for g in groups]), torch.stack([g.std(0, correction=0) for g in groups])
    weights = torch.tensor([25.0, 60, 60, 60, 60], dtype=torch.float64)
    density = MixtureSameFamily(Categorical(weights), Independent(Normal(means, deviations), 1))
    found = EMMixture(1, floor=1e-9).fit(TRAIN.select(torch.cat([torch.arange(25), torch.arange(60, 300)]))).score(TEST)
    assert_close(found, -density.log_prob(TEST.features), 1e-8)  # variances of 1e-3 after squares were subtracted


@pytest.mark.parametrize(
    ("name", "shift"), [("mahalanobis", 0), ("relative-mahalanobis", 0), ("gda", 1), ("em-mixture", 1)]
)
def test_the_unit_of_the_features_shifts_densities_and_leaves_distances(name: str, shift: int) -> None:
    """With units that are always 0, whose variance is the shrinkage or the floor alone."""
    train, test = (replace(part, features=part.features * (torch.arange(WIDTH) < 40)) for part in (TRAIN, TEST))
    scaled = [replace(part, features=1e3 * part.features) for part in (train, test)]
    expected = build(name).fit(train).score(test) + shift * WIDTH * math.log(1e3)
    assert_close(build(name).fit(scaled[0]).score(scaled[1]), expected, 1e-8)  # rounding of 1e-6 of a variance


def test_vim_is_its_formula() -> None:
    origin = -np.linalg.pinv(WEIGHT.numpy()) @ BIAS.numpy()
    moved, x = TRAIN.features.numpy() - origin, TEST.features.numpy() - origin
    _, _, directions = np.linalg.svd(moved, full_matrices=True)
    lengths, residual = (np.linalg.norm(part @ directions[10:].T, axis=1) for part in (moved, x))
    share = TRAIN.logits.amax(1).mean().item() / lengths.mean()
    assert_close(ViM(10).fit(TRAIN).score(TEST), share * residual + ENERGY.numpy(), 1e-8)  # eigh against svd


def test_vim_without_a_residual_is_energy() -> None:
    assert torch.equal(ViM(WIDTH).fit(TRAIN).score(TEST), ENERGY)


def test_vim_takes_half_of_few_features_and_the_authors_numbers_of_many() -> None:
    train = Outputs(TRAIN.features, TRAIN.logits, weight=WEIGHT)
    assert_close(ViM().fit(train).score(train), ViM(WIDTH // 2).fit(train).score(train))
    assert [default_dimension(width) for width in (512, 768, 2048)] == [256, 512, 1000]


def test_react_is_energy_where_nothing_is_clipped_and_clips_above_its_percentile() -> None:
    fitted = ReAct().fit(TRAIN)
    clipped = TEST.features.clamp(max=np.percentile(TRAIN.features.numpy(), 90, method="inverted_cdf"))
    assert_close(fitted.score(TEST), scores.energy(clipped @ WEIGHT.T + BIAS))
    fitted.threshold = math.inf
    assert_close(fitted.score(TEST), ENERGY)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 0.99, 1.0])
def test_quantile_by_counting_is_numpys(kind: torch.dtype, share: float) -> None:
    values = torch.randn(37, 11, generator=torch.Generator().manual_seed(0)).to(kind)
    for each in (values, values.relu(), values * 1e-20, torch.ones_like(values)):
        expected = np.percentile(each.numpy(), 100 * share, method="inverted_cdf")
        assert quantile(each, share) == pytest.approx(float(expected), rel=1e-15)  # float64 to 64 halvings


def test_ash_p_is_energy_where_nothing_is_cut() -> None:
    assert_close(ASH("p", percentile=0).score(TEST), ENERGY)


def test_ash_shapes_the_activations_as_its_variants_say() -> None:
    one = Outputs(
        torch.tensor([[4.0, 0.0, 1.0, 3.0, -2.0]]), torch.zeros(1, 5), weight=torch.eye(5), bias=torch.arange(5.0)
    )
    scale = math.exp(8 / 7)  # all activations sum to 8, those that stay to 7
    for detector, left in (
        (ASH("p", 60), (4, 0, 0, 3, 0)),
        (ASH("b", 60), (4, 0, 0, 4, 0)),
        (ASH("s", 60), (4 * scale, 0, 0, 3 * scale, 0)),
    ):
        logits = torch.tensor([left], dtype=torch.float64) + torch.arange(5)
        assert_close(detector.score(one), scores.energy(logits))


def test_she_is_the_product_with_the_mean_of_correct_samples() -> None:
    labels = LABELS.clone()
    labels[:5], labels[60:120] = 1, 0  # five samples of class 0 are called 1, and the others of class 1 all 0
    train = Outputs(TRAIN.features, TRAIN.logits, labels)
    correct_only = [TRAIN.features[(labels == c) & (TRAIN.predictions == c)] for c in range(CLASSES)]
    correct_only[1] = TRAIN.features[labels == 1]  # none of its samples is classified correctly
    templates = torch.stack([group.mean(0) for group in correct_only])
    assert_close(SHE().fit(train).score(TEST), -(TEST.features * templates[TEST.predictions]).sum(1))


@pytest.mark.parametrize("name", names())
def test_scores_do_not_depend_on_the_chunks_or_the_company(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build(name).fit(TRAIN).score(TEST)
    for module in (detector_module, knn, react, em_mixture):
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", 7 * WIDTH)
    parts = build(name).fit(TRAIN)
    assert_close(parts.score(TEST), whole, 1e-8)  # sums in another order, through an inverse covariance
    assert_close(parts.score(TEST.select(torch.tensor([3]))), whole[3:4], 1e-8)
    assert len(parts.score(TEST.select(torch.tensor([], dtype=torch.int64)))) == 0


@pytest.mark.parametrize("name", names())
def test_half_and_single_precision_outputs_give_float64_scores_without_gradients(name: str) -> None:
    fitted = build(name)
    for kind in (torch.float32, torch.bfloat16):
        train, test = (
            Outputs(p.features.to(kind), p.logits.to(kind), LABELS[: len(p)], weight=WEIGHT.to(kind).requires_grad_())
            for p in (TRAIN, TEST)
        )
        found = fitted.fit(train).score(test)
        assert found.dtype == torch.float64
        assert found.shape == (len(TEST),)
        assert bool(found.isfinite().all())
        assert not found.requires_grad
